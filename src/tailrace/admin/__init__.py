"""What an operator does to a home as a whole: scrub it, copy it, see what it costs.

Used from outside: scrub, report, copy, cost, traffic.
Read in this order: scrub, items, guards, strays, report, copy, target, cost, meter, traffic.
"""
