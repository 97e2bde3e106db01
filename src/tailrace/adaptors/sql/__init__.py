"""What every SQL sink shares: tasks stage folded rows, and one transaction merges the staged rows into the tables and
stores the offsets.  A SQL system adds a `Dialect`, a `SqlDatabase` and a bulk load; `writer.SqlWriter` does the rest.

Used from outside: connection, dialect, names, columns, staged_rows, staging, target, merge, state, written_tables,
writer.
Read in this order: writer, dialect, connection, names, columns, staged_rows, staging, merge, ddl, target, state,
written_tables, refused_row.
"""
