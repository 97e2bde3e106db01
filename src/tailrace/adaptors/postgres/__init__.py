"""PostgreSQL, as a source (copy, then logical replication) and as a sink (exactly once)."""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.postgres.reader import PostgresReader
from tailrace.adaptors.postgres.settings import PostgresSink, PostgresSource
from tailrace.adaptors.postgres.writer import PostgresWriter

adaptor = Adaptor(
    name="postgres",
    about="PostgreSQL 15 and newer: copied in parallel, followed by logical replication; written exactly once",
    reader=PostgresReader,
    reader_settings=PostgresSource,
    writer=PostgresWriter,
    writer_settings=PostgresSink,
    example='uri = "${SHOP_PG}"  # postgresql://user:password@host:5432/shop',
)
