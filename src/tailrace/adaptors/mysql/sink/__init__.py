"""MySQL and MariaDB as a sink: tasks stage rows in tables of tailrace's own, and one transaction merges them together
with the offsets (see adaptors.sql).  CREATE and ALTER TABLE commit by themselves here: tables are prepared before it.

Used from outside: writer.
Read in this order: writer, connection, loader, dialect, column_types, widening.
"""
