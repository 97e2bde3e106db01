"""DynamoDB, as a source (a parallel scan, then the tables' streams) and as a sink (exactly once in transactions).

Read in this order: settings, service, errors, item_json, pace.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.dynamodb.settings import DynamoSink, DynamoSource
from tailrace.adaptors.dynamodb.sink.writer import DynamoWriter
from tailrace.adaptors.dynamodb.source.reader import DynamoReader

adaptor = Adaptor(
    name="dynamodb",
    about="DynamoDB: tables copied by a parallel scan, followed by their streams; written exactly once in "
    "transactions, or in batches, idempotent by key",
    reader=DynamoReader,
    reader_settings=DynamoSource,
    writer=DynamoWriter,
    writer_settings=DynamoSink,
    limits="not carried: indexes, time to live, capacity and other settings of tables (docs/guide/dynamodb.md)",
    example='region = "eu-central-1"  # credentials as for every program of AWS: environment, profile, role',
)
