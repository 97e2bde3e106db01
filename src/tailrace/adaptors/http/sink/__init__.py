"""Webhooks as a sink: tasks make the bodies, and `finish` posts them, those of one document one after the other.

Used from outside: writer.
Read in this order: writer, messages, endpoint.
"""
