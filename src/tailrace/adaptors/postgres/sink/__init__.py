"""PostgreSQL as a sink: tasks stage rows in tables of tailrace's own, and one transaction merges them and stores the
offsets (see adaptors.sql).

Used from outside: writer.
Read in this order: writer, loader, dialect, column_types, widening.
"""
