"""RabbitMQ as a sink: every message is published, mandatory and confirmed; at least once.

Used from outside: writer.
Read in this order: writer, template, messages, publication.
"""
