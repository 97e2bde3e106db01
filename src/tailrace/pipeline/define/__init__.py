"""Definitions of pipelines, which their authors write in Python or TOML, and their changes since the last run.

Used from outside: builder, definition, drift.
Read in this order: builder, toml, definition, drift.
"""
