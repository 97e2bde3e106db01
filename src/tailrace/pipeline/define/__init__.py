"""A pipeline as its author writes it, in Python or TOML, and what has changed of it since its last run.

Used from outside: builder, definition, drift.
Read in this order: builder, toml, definition, drift.
"""
