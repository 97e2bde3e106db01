"""Files as a sink: each batch is seen whole or not at all, and once.

Used from outside: writer, shapes.
Read in this order: writer, parts, finished, encoding, shapes, state, current, disk.
"""
