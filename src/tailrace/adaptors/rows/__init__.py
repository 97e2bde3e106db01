"""Messages of a pipeline as Arrow rows, and what all adaptors do with rows.

Used from outside: rows, message, provenance, record_key, unset, removal, command, fold, json_text, typed_rows,
change_buffer, overflow, records.
Read in this order: rows, message, record_key, unset, removal, provenance, command, fold, json_text, typed_rows,
change_buffer, overflow, records.
"""
