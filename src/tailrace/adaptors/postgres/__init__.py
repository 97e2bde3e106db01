"""PostgreSQL, as a source (copy, then logical replication) and as a sink (exactly once).

Read in this order: settings, database, connection_pool, catalog, types, arrays, names, errors.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.postgres.settings import PostgresSink, PostgresSource
from tailrace.adaptors.postgres.sink.writer import PostgresWriter
from tailrace.adaptors.postgres.source.reader import PostgresReader

adaptor = Adaptor(
    name="postgres",
    about="PostgreSQL 15 and newer: copied in parallel, followed by logical replication; written exactly once",
    reader=PostgresReader,
    reader_settings=PostgresSource,
    writer=PostgresWriter,
    writer_settings=PostgresSink,
    limits="not carried: virtual generated columns, tables without columns, drops of tables, and TRUNCATE of "
    "single partitions (docs/guide/pipelines.md)",
    example='uri = "${SHOP_PG}"  # postgresql://user:password@host:5432/shop',
)
