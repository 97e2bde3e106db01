"""Upkeep: retention, compaction, merging and cleaning of a topic, while others read and write it.

Used from outside: scheduler, topic_upkeep, retention, retention_holds, repack.
Read in this order: scheduler, topic_upkeep, retention, retention_clock, retention_holds, merge, merge_plan, repack,
clean.
"""
