"""The operations of the HTTP API, a file for each noun.

Used from outside: table, topics, records, groups, events, queues, streams, handler_letters,
pipelines, home.
Read in this order: table, topics, records, groups, events, queues, leases, streams, handler_letters, pipelines, home.
"""
