"""MySQL and MariaDB as a sink: tasks stage rows in tables of tailrace's own, and in one transaction the driver merges
them and stores the offsets (see adaptors.sql).  CREATE and ALTER TABLE commit implicitly here, so the driver prepares
tables before that transaction.

Used from outside: writer.
Read in this order: writer, connection, loader, dialect, column_types, widening.
"""
