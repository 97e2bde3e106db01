"""Sink: Spark's tasks store chunks, and the driver appends all of them by one write.

Used from outside: sink, rows.
Read in this order: sink, rows, task, commit.
"""
