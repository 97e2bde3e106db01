"""Upkeep: retention, compaction, merging and cleaning of a topic, while others read and write it.

Used from outside: scheduler, topic_upkeep, retention, holds, repack.
Read in this order: scheduler, topic_upkeep, retention, retention_clock, holds, merge, merge_plan, repack, clean.
"""
