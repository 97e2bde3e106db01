"""Compaction: of each key only the newest record stays.

Used from outside: compaction, round, unreadable.
Read in this order: compaction, round, newest_by_key, rewrite, unreadable.
"""
