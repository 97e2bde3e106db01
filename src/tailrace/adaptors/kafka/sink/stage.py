"""Staging: tasks hand their records to `finish`, in their result if it is small, else in a topic of tailrace's own.

    <state>.staged    value: an Arrow stream of records; the topic's retention removes it after a few hours

A task cuts its share into parts and sends each as one record.  It sends all of them to one partition, in order.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.kafka.cluster import ANSWER_SECONDS, Cluster
from tailrace.adaptors.kafka.errors import REFUSED, rejected
from tailrace.adaptors.kafka.names import own_topic
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink.encoding import encoded
from tailrace.adaptors.sinks.folding import counted
from tailrace.errors import Unavailable

INLINE_BYTES = 256 * 1024
"""The most bytes of a share that the task's result carries."""
PART_BYTES = 512 * 1024
"""About the size of a part.  A larger row is a part of its own."""
MAX_PART_BYTES = 128 * 1024 * 1024
PARTITIONS = 8
"""The partitions of a staging topic; each task takes one at random."""
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(6 * 3600 * 1000),
    "segment.ms": str(3600 * 1000),
    "max.message.bytes": str(MAX_PART_BYTES),
}


@dataclass(frozen=True, slots=True)
class Part:
    """Records for one topic.  They are in `data`, or in the staging topic's record at `partition` and `offset`."""

    topic: str
    rows: int
    data: bytes = b""
    partition: int = -1
    offset: int = -1


@dataclass(slots=True)
class Share:
    """The parts that a task staged, in order, and the namespaces of each topic."""

    parts: list[Part] = field(default_factory=list)
    topics: dict[str, list[str]] = field(default_factory=dict)


def staging_topic(settings: KafkaSink) -> str:
    """The name of the staging topic."""
    return own_topic(settings.state, "staged")


def stage(cluster: Callable[[], Cluster], settings: KafkaSink, rows: Iterable[pa.RecordBatch]) -> Staged:
    """Stage a task's share: encode its rows, and send what is too large for the task's result to the staging topic.
    Returns when the brokers have stored every part."""
    counts: dict[str, int] = {}
    share, outside = Share(), _Outside(cluster, settings)
    room = INLINE_BYTES
    for topic, namespace, records in encoded(counted(rows, counts), settings):
        names = share.topics.setdefault(topic, [])
        if namespace not in names:
            names.append(namespace)
        for some in _cut(records):
            data = _written(some)
            if len(data) <= room:
                room -= len(data)
                share.parts.append(Part(topic, some.num_rows, data))
            else:
                room = 0  # not needed for the order: it keeps the result small
                share.parts.append(outside.put(topic, some, data))
    return Staged(sum(counts.values()), outside.settled(share), counts)


def _cut(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut records into slices of about a part's size."""
    if not records.num_rows:
        return
    many = max(1, -(-records.nbytes // PART_BYTES))
    step = max(1, records.num_rows // many)
    for at in range(0, records.num_rows, step):
        yield from _halved(records.slice(at, step))


def _halved(some: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a slice again while it is far too large, because rows differ in size."""
    if some.num_rows > 1 and some.nbytes > 2 * PART_BYTES:
        middle = some.num_rows // 2
        yield from _halved(some.slice(0, middle))
        yield from _halved(some.slice(middle))
    else:
        yield some


def _written(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(records)
    return bytes(sink.getvalue().to_pybytes())


class _Outside:
    """Sends parts to the staging topic, which it makes if it is missing."""

    def __init__(self, cluster: Callable[[], Cluster], settings: KafkaSink) -> None:
        self._make, self._settings = cluster, settings
        self._producer: Any = None
        self._partition = secrets.randbelow(PARTITIONS)
        self._offsets: list[int] = []
        self._error: tuple[Any, str, bytes | None] | None = None
        """The first error, and the topic and the first key of the part that it is about."""

    def put(self, topic: str, records: pa.RecordBatch, data: bytes) -> Part:
        """Send a part without waiting for its answer.  Its offset is a placeholder until `settled`."""
        from confluent_kafka import KafkaException

        cluster, name = self._make(), staging_topic(self._settings)
        if self._producer is None:
            cluster.ensure(name, PARTITIONS, self._settings.replication, CONFIG)
            self._producer = cluster.producer(
                message_max_bytes=MAX_PART_BYTES, queue_buffering_max_kbytes=64 * 1024, linger_ms=0
            )
        number, key = len(self._offsets), records.column("key")[0].as_py()
        self._offsets.append(-1)
        with cluster.guarded("staging rows", name):
            while True:
                try:
                    told = self._told(number, topic, key)
                    self._producer.produce(name, data, partition=self._partition, on_delivery=told)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as error:
                    self._raise(error.args[0], topic, key)
        return Part(topic, records.num_rows, partition=self._partition, offset=-1 - number)

    def _raise(self, error: Any, topic: str, key: bytes | None) -> NoReturn:
        """Raise the error of a part: `Rejected` where the part's one row is too large."""
        from confluent_kafka import KafkaException

        if error.name() in REFUSED:
            raise rejected(error, staging_topic(self._settings), topic, key) from None
        raise KafkaException(error)

    def _told(self, number: int, topic: str, key: bytes | None) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                self._error = self._error or (error, topic, key)
            else:
                self._offsets[number] = message.offset()

        return told

    def settled(self, share: Share) -> Share:
        """Wait until the brokers have stored all parts, and return the share with their offsets."""
        if self._producer is None:
            return share
        cluster = self._make()
        with cluster.guarded("staging rows", staging_topic(self._settings)):
            left = self._producer.flush(4 * ANSWER_SECONDS)
            if self._error is not None:
                self._raise(*self._error)
        if left:
            raise Unavailable(
                f"Kafka at {cluster.where} did not take what was staged within {4 * ANSWER_SECONDS:.0f} s"
            )
        share.parts = [
            part if part.data else Part(part.topic, part.rows, b"", part.partition, self._offsets[-1 - part.offset])
            for part in share.parts
        ]
        return share


def records_of(cluster: Cluster, settings: KafkaSink, parts: Sequence[Part]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of parts in order, each batch with its topic.  `Unavailable` if a part is gone from the staging
    topic: the batch must then be staged again."""
    reading: _Reading | None = None
    try:
        for part in parts:
            if not part.data and reading is None:
                reading = _Reading(cluster, settings)
            data = part.data or (reading.part(part) if reading is not None else b"")
            with pa.ipc.open_stream(data) as stream:
                for batch in stream:
                    yield part.topic, batch
    finally:
        if reading is not None:
            reading.close()


class _Reading:
    """Reads parts from the staging topic, one after the other."""

    def __init__(self, cluster: Cluster, settings: KafkaSink) -> None:
        self._cluster, self._topic = cluster, staging_topic(settings)
        self._consumer: Any = cluster.consumer(
            isolation_level="read_uncommitted", fetch_wait_max_ms=10, queued_max_messages_kbytes=16 * 1024,
            fetch_message_max_bytes=4 * PART_BYTES, receive_message_max_bytes=2 * MAX_PART_BYTES,
        )  # fmt: skip
        self._at: tuple[int, int] | None = None

    def part(self, part: Part) -> bytes:
        """The bytes of a part."""
        from confluent_kafka import TopicPartition

        if self._at is None or self._at[0] != part.partition or self._at[1] > part.offset:
            self._consumer.assign([TopicPartition(self._topic, part.partition, part.offset)])
        while (message := self._consumer.poll(ANSWER_SECONDS)) is not None:
            error = message.error()
            if error is not None and error.name() != "_PARTITION_EOF" and not error.retriable():
                break
            if error is None and message.offset() >= part.offset:
                self._at = part.partition, part.offset + 1
                if message.offset() > part.offset:
                    break
                return bytes(message.value())
        raise Unavailable(
            f"rows for the topic {part.topic} that were staged in {self._topic} are gone, or cannot be read; the batch "
            "must be staged again"
        )

    def close(self) -> None:
        self._consumer.close()
