"""RabbitMQ as a sink: it publishes every message as mandatory and with a confirm, at least once.

Used from outside: writer.
Read in this order: writer, template, messages, publication.
"""
