"""The state that a sink keeps for a writer, in a compacted topic with one partition.

    <state>.offsets.<pipeline>.<writer>    key "offsets": {epoch, offsets, claimed}
                                           key "topic:<name>": {id, namespaces}, a topic that the writer has written to

Each writer has a topic of its own: a reader of committed records waits for open transactions, and must not have to wait
for those of other writers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tailrace.adaptors.kafka.cluster import ANSWER_SECONDS, Cluster
from tailrace.adaptors.kafka.errors import MISSING
from tailrace.adaptors.kafka.names import own_topic
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import NotReady, Unavailable

OFFSETS, TOPIC = b"offsets", b"topic:"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": str(3600 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(16 * 1024 * 1024),
}
"""Compacts often, so that a reader of the state has little to read, however many batches there were."""
Records = Mapping[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class WrittenTopic:
    """A topic that a writer has written to: its id, and the namespaces whose messages it holds."""

    id: str
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a writer: its fence, and the topics that it has written to."""

    fence: Fence = field(default_factory=Fence)
    topics: Mapping[str, WrittenTopic] = field(default_factory=dict)

    def after(self, fence: Fence, topics: Mapping[str, WrittenTopic]) -> State:
        """The state with another fence, and with these topics added."""
        return State(fence, {**self.topics, **topics})

    def records(self, before: State) -> dict[bytes, bytes | None]:
        """The records that turn the stored state `before` into this one."""
        gone = {TOPIC + name.encode(): None for name in before.topics if name not in self.topics}
        new = {
            TOPIC + name.encode(): msgspec.json.encode({"id": one.id, "namespaces": one.namespaces})
            for name, one in self.topics.items()
            if before.topics.get(name) != one
        }
        fence = {"epoch": self.fence.epoch, "offsets": self.fence.offsets, "claimed": self.fence.claimed}
        return {**gone, **new, OFFSETS: msgspec.json.encode(fence)}

    @classmethod
    def read(cls, records: Records) -> State:
        """Decode the state from the topic's records, the last of each key."""
        told = records.get(OFFSETS)
        kept = msgspec.json.decode(told) if told is not None else None
        fence = Fence() if kept is None else Fence(kept["epoch"], kept["offsets"], kept["claimed"])
        topics = {}
        for key, value in records.items():
            if key.startswith(TOPIC) and value is not None:
                one = msgspec.json.decode(value)
                topics[key.removeprefix(TOPIC).decode()] = WrittenTopic(one["id"], tuple(one["namespaces"]))
        return cls(fence, topics)


def state_topic(settings: KafkaSink, pipeline: str, writer: str) -> str:
    """The name of the topic with a writer's state.  `NotReady` if it would be too long."""
    name = own_topic(settings.state, "offsets", pipeline, writer)
    if len(name) > 249:
        raise NotReady(
            f"the topic {name} would have more than the 249 characters of a topic; a shorter state = … helps"
        )
    return name


def load(cluster: Cluster, topic: str, *, whole: bool = False) -> State:
    """Read the committed state of a writer; an empty state if the topic does not exist.

    The records of a transaction can be read some time after it was committed, so this waits for open transactions, for
    at most `ANSWER_SECONDS`.  It leaves out one that is open even then, of a run that goes on or has just died; with
    `whole` it raises `Unavailable`, for a caller that has ended all of them."""
    return State.read(dict(_committed(cluster, topic, whole=whole)))


def _committed(cluster: Cluster, topic: str, *, whole: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """The committed records of a topic's one partition, to its end."""
    if topic not in cluster.describe([topic]):
        return
    from confluent_kafka import TopicPartition

    first, end = cluster.first_offsets([(topic, 0)])[topic, 0], cluster.next_offsets([(topic, 0)])[topic, 0]
    consumer: Any = cluster.consumer(isolation_level="read_committed", fetch_wait_max_ms=10)
    deadline, read_to = time.monotonic() + ANSWER_SECONDS, -1
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        while read_to < end and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                yield message.key() or b"", message.value()
            elif error is not None and error.name() == "_PARTITION_EOF":
                read_to = message.offset()
            elif error is not None and error.name() not in MISSING and not error.retriable():
                break
    finally:
        consumer.close()
    if read_to < (end if whole else 0):
        raise Unavailable(
            f"Kafka at {cluster.where}: the topic {topic}, which has the offsets, cannot be read to its end"
        )
