"""What sinks of lake tables (Delta, Iceberg) share: a batch over many tables is decided by one commit to a table of
tailrace's own, which has the offsets, and then reaches each table by a commit that says so itself.

Used from outside: column_types, schemas, ledger, names, staging, stores, units, table, writer.
Read in this order: writer, ledger, staging, stores, units, names, table, schemas, column_types.
"""
