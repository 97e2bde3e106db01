"""The command line: one package or file per command group.  What takes long to import is imported where it is needed.

Read in this order: main, which imports only the group that a command line names; shared; then any group.
"""
