"""Kafka as a sink: every message is a record, and one transaction holds a batch and its offsets.

Used from outside: writer.
Read in this order: writer, encoding, stage, transactions, state.
"""
