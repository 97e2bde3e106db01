"""DynamoDB as a source: tables copied by the segments of a parallel scan, then followed by their streams.

Used from outside: reader.
Read in this order: reader, tables, copy, items, column_types, position, table_stream, progress, follower.
"""
