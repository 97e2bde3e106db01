"""Consumer groups: processes that share a topic's partitions, and how far each partition is read.

Used from outside: consumer, async_consumer, prefetch, group, member, lag, stored_positions.
Read in this order: consumer, async_consumer, prefetch, group, member, lag, stored_positions.
"""
