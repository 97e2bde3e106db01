"""Memory: a table, objects and a change stream in this process's memory, for `memory://` homes and for metering.

They refuse everything that a real backend would refuse.  `tailrace.testing` builds on them and adds faults.

Used from outside: table, objects, changes, admission.
Read in this order: table, admission, changes, objects.
"""
