"""Topics as a source: copied by ranges of offsets, then followed.

Used from outside: reader.
Read in this order: reader, follower.
"""
