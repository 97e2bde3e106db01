"""Integrity: scrub checks that everything written is still there, and an operator may quarantine what is damaged.

Used from outside: scrub, damage, missing_pages, quarantine.
Read in this order: scrub, damage, missing_pages, quarantine.
"""
