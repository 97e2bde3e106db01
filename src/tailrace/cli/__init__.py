"""The command line: one package or file per command group.  A command imports what is slow to import when it runs.

Read in this order: main, which imports only the group that a command line names; shared; then any group.
"""
