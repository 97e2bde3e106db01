"""Files as a sink: readers see each batch whole or not at all, and once.

Used from outside: writer, shapes.
Read in this order: writer, parts, finished, encoding, shapes, state, current, disk.
"""
