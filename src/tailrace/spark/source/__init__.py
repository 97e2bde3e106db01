"""Source: the driver decides what a Spark job reads, and its tasks fetch it.

Used from outside: batch, stream, topics, change_stream, feed, lag.
Read in this order: batch, stream, topics, ranges, offsets, filters, task, change_stream, feed, lag.
"""
