"""Compaction: keeps only the newest record of each key.

Used from outside: compaction, round, unreadable.
Read in this order: compaction, round, newest_by_key, rewrite, unreadable.
"""
