"""SQLite: tables in one file that many threads and processes share, with one fsync for each group of commits, and
changes captured in the shape of DynamoDB Streams.

Used from outside: table, database, database_file, codec, capture.
Read in this order: table, database, database_file, connection, committer, codec, recent_items, capture, snapshot,
checkpointer, checksums, watermark, journal, integrity, lock_holder.
"""
