"""Reading with Spark: what is read is decided on the driver and fetched by tasks.

Used from outside: batch, stream, topics, change_stream, feed, lag.
Read in this order: batch, stream, topics, ranges, offsets, filters, task, change_stream, feed, lag.
"""
