"""The log: topics of records, in partitions.  Everything one can do with a topic starts at `topic`.  `format` defines
what is stored, `write` and `read` put records in and take them out, `groups` has the consumers that share a topic,
`upkeep` looks after old records, `integrity` finds damage, `interchange` has the files that other systems read.

Used from outside: topic, record, settings, catalog, topic_log, transaction.
Read in this order: topic, record, murmur2, settings, catalog, topic_log, transaction, aio.
"""
