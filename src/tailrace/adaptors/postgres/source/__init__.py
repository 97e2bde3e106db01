"""PostgreSQL as a source: tables are copied in pieces, then followed by logical replication.

Used from outside: reader, position.
Read in this order: reader, copy, slot, publication, follower, session, log_stream, pgoutput, decoder, transaction,
missing_fields, deferred_ids, position, timeline, followed_tables, alterations, recopier, recopy, renames,
dropped_tables.
"""
