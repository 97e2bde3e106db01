"""Formats of the messages that brokers carry: what makes rows of them, and records of rows.

Used from outside: codec, decoder, outgoing, received, start.
Read in this order: start, received, decoder, records, documents, codec, schema_registry,
protobuf, debezium, connect_types, cloud_events, outgoing, envelope.
"""
