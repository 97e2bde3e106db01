"""MongoDB, as a source (copy, then a change stream) and as a sink (exactly once in transactions).

Read in this order: settings, deployment, errors, extended_json, id_text.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.mongodb.settings import MongoSink, MongoSource
from tailrace.adaptors.mongodb.sink.writer import MongoWriter
from tailrace.adaptors.mongodb.source.reader import MongoReader

adaptor = Adaptor(
    name="mongodb",
    about="MongoDB 5.0 and newer: copied in parallel, followed by a change stream; written exactly once on a replica "
    "set, idempotent by _id on a standalone server",
    reader=MongoReader,
    reader_settings=MongoSource,
    writer=MongoWriter,
    writer_settings=MongoSink,
    limits="not carried: views, time series, indexes and options of collections (docs/guide/mongodb.md)",
    example='uri = "${SHOP_MONGO}"  # mongodb://user:password@host:27017/shop?replicaSet=rs0',
)
