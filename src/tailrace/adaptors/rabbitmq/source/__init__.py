"""RabbitMQ as a source: queues, streams and the partitions of super streams, each followed by a receiver of its own.

Used from outside: reader.
Read in this order: reader, delivery, seen_ids, queue_follower, stream_client, stream_message, stream_follower.
"""
