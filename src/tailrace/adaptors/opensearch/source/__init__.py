"""OpenSearch as a source: a copy of each shard of an index as it is at one moment.

Used from outside: reader.
Read in this order: reader, shard_copy.
"""
