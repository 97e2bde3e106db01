"""Adaptors: the sources and sinks of pipelines.  `contract` says what a pipeline asks of an adaptor, `registry` finds
an adaptor by its name, and each system has a package of its own.

Used from outside: contract, registry.
Read in this order: contract, registry, stdout.
"""
