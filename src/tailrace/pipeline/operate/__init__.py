"""Operators' actions on pipelines: look at them, move their offsets, deliver messages by hand.

Used from outside: ledger, operator, step, dead_retry.
Read in this order: ledger, operator, step, dead_retry.
"""
