"""Formats of the messages that brokers carry: what makes rows of them, and records of rows.

Used from outside: decoder, outgoing, received, start.
Read in this order: start, received, decoder, records, documents, debezium, connect_types, cloud_events,
outgoing, envelope.
"""
