"""What happens to a topic's history while others read and write: retention, merging, compaction, cleaning.

Used from outside: scheduler, topic_upkeep, retention, retention_holds, repack.
Read in this order: scheduler, topic_upkeep, retention, retention_clock, retention_holds, merge, merge_plan, repack,
clean.
"""
