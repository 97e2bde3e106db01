"""The command line: one package or file per command group.  A command imports what is slow to import when it runs.

`main` imports only the group that a command line names.

Read in this order: main, shared, topic, group, events, stream, queue, pipeline, spark, home.
"""
