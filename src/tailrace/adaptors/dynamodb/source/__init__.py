"""DynamoDB as a source: the reader copies tables in the segments of a parallel scan, then follows their streams.

Used from outside: reader.
Read in this order: reader, tables, copy, items, column_types, position, table_stream, progress, follower.
"""
