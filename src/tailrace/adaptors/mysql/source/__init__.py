"""MySQL and MariaDB as a source: tables copied in pieces, then followed by the row binlog.

The binlog is decoded here.  The library mysql-replication makes null of zero dates and of an empty SET, gives JSON and
TIME in forms that SELECT does not, and after a lost connection asks again for the log from where it first began.

Used from outside: reader, position.
Read in this order: reader, server, copy, snapshot, follower, log_stream, events, decoder, row_decoder, values,
json_binary, charsets, transaction, row_builder, statements, alterations, cascades, recopy, position, lineage.
"""
