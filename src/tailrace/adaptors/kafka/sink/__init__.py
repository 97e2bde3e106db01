"""Kafka as a sink: every message a record, each batch a transaction together with its offsets.

Used from outside: writer.
Read in this order: writer, encoding, stage, transactions, state.
"""
