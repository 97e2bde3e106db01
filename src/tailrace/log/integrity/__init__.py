"""Is everything still there that was written?  Scrub finds damage, and an operator may quarantine it.

Used from outside: scrub, damage, missing_pages, quarantine.
Read in this order: scrub, damage, missing_pages, quarantine.
"""
