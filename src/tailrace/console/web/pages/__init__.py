"""The pages themselves, one file for each noun; what they show comes from the operations of the API.

Used from outside: table.
Read in this order: table, overview, concerns, topics, records, scan, tail, groups, queues, messages, events,
pipelines, pipeline_actions, streams, handler_letters, home.
"""
