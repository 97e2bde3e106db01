"""Topics as a source: their records are copied by ranges of offsets, then followed.

Used from outside: reader.
Read in this order: reader, follower.
"""
