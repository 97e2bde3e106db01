"""Adaptors: the ends of a pipeline.  `contract` says what a pipeline asks of them, `registry` finds them by name; each
system has a package of its own.

Used from outside: contract, registry.
Read in this order: contract, registry, stdout.
"""
