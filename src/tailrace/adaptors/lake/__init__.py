"""What sinks of lake tables (Delta, Iceberg) share.  A batch may change many tables: one commit to a ledger, a table of
tailrace's own, decides on it together with its offsets.  Then one or more commits to each table bring in its rows, each
with the number of its step, so that a step reaches a table once.

Used from outside: column_types, schemas, ledger, names, staging, stores, units, table, writer.
Read in this order: settings, writer, ledger, staging, stores, units, names, table, schemas, column_types.
"""
