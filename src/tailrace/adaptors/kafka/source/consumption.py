"""Consumption: the client that fetches a group's partitions, and tailrace's errors for the client's."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.errors import AUTHENTICATION, MISSING, SECURITY, UNREADABLE, failed
from tailrace.adaptors.kafka.settings import KafkaSource
from tailrace.errors import PositionLost

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger("tailrace")
BEAT_SECONDS = 0.9
"""How long `next` waits for a first record; then it returns without any."""
GATHER_SECONDS = 0.02
"""How long `next` gathers more records after a first one."""
MAX_RECORDS_PER_POLL = 500
QUEUED_KILOBYTES = 16 * 1024
"""How much the client fetches ahead."""
AFRESH = (
    "What was between is lost to the pipeline, which never goes on behind a gap by itself. Give it another name, and "
    "it begins afresh, from where start says; a longer retention.ms of the topic keeps more"
)


class Consumed(NamedTuple):
    """What one `next` has fetched: records; the partitions that were read to their end, with their next offsets; and
    topics that the brokers do not have."""

    records: list[Message]
    ends: dict[tuple[str, int], int]
    missing: set[str]


class Consumption:
    """Fetches the assigned partitions from the assigned offsets.  The client never chooses an offset itself."""

    def __init__(self, cluster: Cluster, settings: KafkaSource) -> None:
        self._cluster, self._settings = cluster, settings
        self._consumer: Any = cluster.consumer(
            group_id=settings.group or "tailrace",
            isolation_level="read_committed" if settings.committed else "read_uncommitted",
            fetch_wait_max_ms=100,
            queued_max_messages_kbytes=QUEUED_KILOBYTES,
        )
        self._assigned: set[tuple[str, int]] = set()

    def assign(self, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Fetch more partitions, each from its (offset, leader epoch); an epoch of -1 is not sent."""
        from confluent_kafka import TopicPartition

        if offsets:
            places = [
                TopicPartition(topic, q, at, **({"leader_epoch": epoch} if epoch >= 0 else {}))
                for (topic, q), (at, epoch) in offsets.items()
            ]
            with self._cluster.guarded("reading topics"):
                self._consumer.incremental_assign(places)
            self._assigned |= offsets.keys()

    def leave(self, topics: Iterable[str]) -> None:
        """Stop fetching these topics."""
        from confluent_kafka import TopicPartition

        gone = {one for one in self._assigned if one[0] in set(topics)}
        if gone:
            with self._cluster.guarded("leaving topics"):
                self._consumer.incremental_unassign([TopicPartition(*one) for one in gone])
            self._assigned -= gone

    def next(self) -> Consumed:
        """Fetch for up to about a second.  `PositionLost` if a partition no longer has the next offset."""
        consumed = Consumed([], {}, set())
        self._cluster.reports.clear()
        first, size = self._consumer.poll(BEAT_SECONDS), 0
        deadline = time.monotonic() + GATHER_SECONDS
        some = [] if first is None else [first]
        while some:
            size += sum(self._take(message, consumed) for message in some)
            if len(consumed.records) >= self._settings.batch_rows or size >= self._settings.batch_bytes:
                break
            left = min(MAX_RECORDS_PER_POLL, self._settings.batch_rows - len(consumed.records))
            some = self._consumer.consume(left, max(0.0, deadline - time.monotonic()))
        if not consumed.records and not consumed.ends:
            self._check_reachable()
        return consumed

    def _take(self, message: Message, consumed: Consumed) -> int:
        error, topic, q = message.error(), message.topic() or "", message.partition() or 0
        if error is None:
            consumed.records.append(message)
            return len(message)
        if error.name() == "_PARTITION_EOF":
            consumed.ends[topic, q] = message.offset() or 0
        elif error.name() in MISSING:
            consumed.missing.add(topic)
        elif error.name() in UNREADABLE:
            raise self._lost(topic, q, error)
        elif not error.retriable():
            raise failed(error, self._cluster.where, f"reading {topic}", self._cluster.reports, topic)
        return 0

    def _lost(self, topic: str, q: int, error: Any) -> PositionLost:
        first = self._cluster.first_offsets([(topic, q)])[topic, q]
        end = self._cluster.next_offsets([(topic, q)])[topic, q]
        return PositionLost(
            f"the topic {topic} of Kafka at {self._cluster.where} no longer has what came after the pipeline's "
            f"position: partition {q} now has offsets {first} to {end} ({error.str()}). Its retention removed records, "
            f"or it was cut off or restored. {AFRESH}"
        )

    def _check_reachable(self) -> None:
        told = self._cluster.reports.worst()
        if told is not None and told.name() in AUTHENTICATION | SECURITY | {"_ALL_BROKERS_DOWN"}:
            raise failed(told, self._cluster.where, "reading topics", self._cluster.reports)

    def show(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for the consumer group of the settings, without waiting.  Nothing depends on them, so an error
        is only logged."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            self._consumer.commit(
                offsets=[TopicPartition(topic, q, at) for (topic, q), at in offsets.items()], asynchronous=True
            )
        except KafkaException as error:
            _log.info("offsets of the group %s were not stored: %s", self._settings.group, error.args[0].str())

    def close(self) -> None:
        """Close the consumer and its connections."""
        self._consumer.close()
