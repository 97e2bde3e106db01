"""Topics as a sink: tasks store chunks, and one transaction appends them together with the offsets.

Used from outside: writer.
Read in this order: writer, guards, manifest.
"""
