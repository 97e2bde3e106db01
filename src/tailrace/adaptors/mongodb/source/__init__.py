"""MongoDB as a source: collections copied in ranges of their ids, then followed by a change stream.

Used from outside: reader.
Read in this order: reader, collections, copy, documents, column_types, position, verification, change_stream,
fragments, follower, row_batches.
"""
