"""OpenSearch as a source: each shard of an index is copied as it is at one moment.

Used from outside: reader.
Read in this order: reader, shard_copy.
"""
