"""Topics of a test: records by hand, and readers and writers of them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tailrace.adaptors.kafka.settings import KafkaSink, KafkaSource
from tailrace.adaptors.kafka.sink.writer import KafkaWriter
from tailrace.adaptors.kafka.source.reader import KafkaReader

PATIENCE = 30.0


class Read(NamedTuple):
    """A record as a consumer has it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int

    @property
    def document(self) -> Any:
        """Its value as JSON."""
        return None if self.value is None else json.loads(self.value)


class Place:
    """Topics whose names begin with `prefix`, with clients of the test's own."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self.brokers, self.prefix = brokers, prefix
        self.admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        self._producer = Producer(
            {"bootstrap.servers": brokers, "partitioner": "murmur2_random", "linger.ms": 0, "log_level": 0}
        )

    def __enter__(self) -> Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        mine = [name for name in self.admin.list_topics(timeout=10).topics if self.prefix in name]
        for future in self.admin.delete_topics(mine).values() if mine else ():
            future.result()

    # -- topics
    def make(self, name: str, partitions: int = 1, **config: str) -> str:
        """A topic, with settings such as retention_ms; its whole name."""
        topic = self.prefix + name
        new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([new])[topic].result()
        self.wait(lambda: len(self._partitions(topic)) == partitions)
        return topic

    def _partitions(self, topic: str) -> list[int]:
        """Those that have a leader."""
        found = self.admin.list_topics(timeout=10).topics.get(topic)
        return [q for q, one in found.partitions.items() if one.leader >= 0] if found is not None else []

    def wait(self, enough: Callable[[], bool]) -> None:
        """Until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def grow(self, name: str, partitions: int) -> None:
        """Have a topic have so many partitions."""
        self.admin.create_partitions([NewPartitions(self.prefix + name, partitions)])[self.prefix + name].result()
        self.wait(lambda: len(self._partitions(self.prefix + name)) == partitions)

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        topic = self.prefix + name
        self.admin.delete_topics([topic])[topic].result()
        self.wait(lambda: topic not in self.admin.list_topics(timeout=10).topics)

    def trim(self, name: str, partition: int, before: int) -> None:
        """Remove the records before an offset, as retention does."""
        for future in self.admin.delete_records([TopicPartition(self.prefix + name, partition, before)]).values():
            future.result()

    # -- records
    def send(self, name: str, records: Iterable[tuple[Any, Any]], **more: Any) -> None:
        """Append keys and values, as JSON unless they are bytes or None."""
        for key, value in records:
            self._producer.produce(self.prefix + name, _bytes(value), _bytes(key), **more)
        assert self._producer.flush(PATIENCE) == 0

    def read(self, name: str, *, committed: bool = True) -> list[Read]:
        """Every record of a topic, partition by partition."""
        topic = self.prefix + name
        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.brokers, "group.id": "test", "enable.auto.commit": False,
                "enable.partition.eof": True, "isolation.level": level, "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )  # fmt: skip
        try:
            partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, q, 0) for q in partitions])
            return sorted(_all(consumer, self._ends(topic)), key=lambda one: (one.partition, one.offset))
        finally:
            consumer.close()

    def _ends(self, topic: str) -> dict[int, int]:
        """The next offset of every partition, of whatever transaction; once all of a new topic have a leader."""
        while True:
            wanted = {TopicPartition(topic, q): OffsetSpec.latest() for q in self._partitions(topic)}
            with contextlib.suppress(KafkaException):
                asked = self.admin.list_offsets(wanted)
                return {one.partition: future.result().offset for one, future in asked.items()}

    # -- ends
    def reader(self, **settings: Any) -> KafkaReader:
        """A new reader of these topics."""
        given = {"brokers": self.brokers, "prefix": self.prefix, "discover": 0.3, "receivers": 1, **settings}
        return KafkaReader(KafkaSource(**given))

    def writer(self, **settings: Any) -> KafkaWriter:
        """A new writer to these topics, with its state among them."""
        given = {"brokers": self.brokers, "prefix": self.prefix, "state": f"__{self.prefix}state", **settings}
        return KafkaWriter(KafkaSink(**given))


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def _all(consumer: Consumer, ends: dict[int, int]) -> Sequence[Read]:
    """All up to these ends: a transaction is committed some time before its records can be read."""
    found: list[Read] = []
    deadline = time.monotonic() + PATIENCE
    while ends:
        assert time.monotonic() < deadline, f"{len(found)} records, to be read yet: {ends}"
        for message in consumer.consume(5000, 0.05):
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF" and message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
                continue
            stamp = message.timestamp()[1]
            place = message.partition(), message.offset()
            found.append(Read(*place, message.key(), message.value(), message.headers() or [], stamp))
    return found
