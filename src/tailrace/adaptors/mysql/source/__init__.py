"""MySQL and MariaDB as a source: the reader copies tables in pieces, then follows them through the row binlog.

This package decodes the binlog itself.  The library mysql-replication turns zero dates and an empty SET into null,
gives JSON and TIME in other forms than SELECT, and after a lost connection requests the log from its first start again.

Used from outside: reader, position.
Read in this order: reader, server, copy, snapshot, follower, log_stream, events, decoder, row_decoder, values,
json_binary, charsets, transaction, row_builder, statements, alterations, side_effects, cascades, recopy, position,
lineage.
"""
