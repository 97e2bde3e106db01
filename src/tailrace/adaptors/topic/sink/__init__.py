"""Topics as a sink: tasks store chunks, and one transaction appends the chunks and stores the offsets.

Used from outside: writer.
Read in this order: writer, guards, manifest.
"""
