"""Kafka as a source: groups of partitions, each followed by a receiver of its own.

Used from outside: reader.
Read in this order: reader, position, follower, consumption.
"""
