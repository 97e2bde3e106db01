"""Kafka, as a source (one receiver for each group of partitions) and as a sink (transactions: readers of committed
records see every message exactly once).

Read in this order: settings, cluster, errors, names.
"""

from tailrace.adaptors.contract import Adaptor
from tailrace.adaptors.kafka.settings import KafkaSink, KafkaSource
from tailrace.adaptors.kafka.sink.writer import KafkaWriter
from tailrace.adaptors.kafka.source.reader import KafkaReader

adaptor = Adaptor(
    name="kafka",
    about="Kafka 2.8 and newer: topics followed from a place of choice; written in transactions, exactly once to "
    "readers of committed records",
    reader=KafkaReader,
    reader_settings=KafkaSource,
    writer=KafkaWriter,
    writer_settings=KafkaSink,
    limits="not carried: envelopes of Debezium in Avro or Protobuf, records written in either; truncates into a topic "
    "(docs/guide/kafka.md)",
    example='brokers = "${SHOP_KAFKA}"  # host:9092,other:9092',
)
