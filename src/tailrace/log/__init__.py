"""The log: topics of records, in partitions.  Everything one can do with a topic starts at `topic`.  `format` has what
is stored, `write` and `read` the two ways, `groups` the consumers that share a topic, `upkeep` what happens to old
records, `integrity` how damage is found, `interchange` the files that other systems read.

Used from outside: topic, record, settings, catalog, topic_log, transaction.
Read in this order: topic, record, settings, catalog, topic_log, transaction, aio.
"""
