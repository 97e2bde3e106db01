"""Adaptors: the readers and writers of pipelines.  `contract` defines what a pipeline asks of them, `registry` finds
them by name, and each system has a package of its own.

Used from outside: contract, registry.
Read in this order: contract, registry, stdout.
"""
