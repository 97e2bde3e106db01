"""Administration of a whole home: scrub it, copy it, estimate what it costs.

Used from outside: scrub, report, copy, cost, traffic.
Read in this order: scrub, items, guards, strays, report, copy, target, cost, meter, traffic.
"""
