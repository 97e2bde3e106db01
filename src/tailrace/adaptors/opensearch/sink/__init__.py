"""OpenSearch as a sink: tasks make documents of rows, and `finish` writes these by bulk requests with versions.

Used from outside: writer.
Read in this order: writer, operations, documents, mapping, target_indexes, bulk, state.
"""
