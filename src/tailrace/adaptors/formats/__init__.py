"""Formats of the messages that brokers carry: what makes rows of them, and records of rows.

Used from outside: decoder, received, outgoing.
Read in this order: received, decoder, records, documents, debezium, connect_types, cloud_events, outgoing, envelope.
"""
