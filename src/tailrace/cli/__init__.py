"""The command line: one file per command group.  What takes long to import is imported where it is needed."""
