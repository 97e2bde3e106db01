"""Commands for a home: make it, serve it, look after it, check it.

Used from outside: metrics, scrub.
Read in this order: homes, serve, doctor, checks, metrics, upkeep, scrub.
"""
