"""The model of shared units: shards of a table, or partitions of the feed's index, that workers lease and commit.

Read `protocol` first.  Its scenario is small enough for every schedule to be tried, so a mutant is found always.
"""
