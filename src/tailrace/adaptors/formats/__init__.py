"""Formats of the messages that brokers carry: decoders, which make rows of records, and encoders of rows as records.

Used from outside: codec, decoder, envelope, outgoing, place_ids, received, start.
Read in this order: start, received, decoder, records, documents, codec, schema_registry,
protobuf, debezium, connect_types, cloud_events, outgoing, envelope, place_ids.
"""
