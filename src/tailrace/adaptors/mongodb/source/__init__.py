"""MongoDB as a source: the reader copies collections in ranges of their ids, then follows them through a change stream.

Used from outside: reader.
Read in this order: reader, collections, copy, documents, column_types, position, verification, change_stream,
fragments, follower, row_batches.
"""
