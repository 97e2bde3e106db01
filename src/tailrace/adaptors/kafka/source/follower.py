"""The follower of a group of partitions: makes changes of its records, with the position after them.

It compares the ids of a batch's topics after it has fetched the batch: when a topic was deleted and made again, the
client goes on at the same offset in the new one, without an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.formats.codec import codec
from tailrace.adaptors.formats.decoder import decoder
from tailrace.adaptors.kafka.cluster import Cluster, TopicInfo
from tailrace.adaptors.kafka.names import namespaces_of
from tailrace.adaptors.kafka.settings import KafkaSource
from tailrace.adaptors.kafka.source.consumption import AFRESH, Consumed, Consumption
from tailrace.adaptors.kafka.source.position import Group, GroupPosition, TopicPosition, partitions_of
from tailrace.errors import PositionLost

if TYPE_CHECKING:
    from confluent_kafka import Message

_log = logging.getLogger("tailrace")
METADATA = "_kafka"
"""The document's field for the record's partition, offset, timestamp and headers, if the settings ask for it."""


class Follower:
    """Follows one group.  `namespaces` are the pipeline's; the pipeline adds those that appear and match."""

    def __init__(
        self, cluster: Cluster, settings: KafkaSource, position: GroupPosition, group: Group, namespaces: Sequence[str]
    ) -> None:
        self._cluster, self._settings, self._group = cluster, settings, group
        self._position, self._namespaces = position, namespaces
        self._decoder = decoder(settings, METADATA, codec(settings))
        self._consumption: Consumption | None = None
        self._read_to_end: set[tuple[str, int]] = set()
        self._offered: set[str] = set()
        self._gone: set[str] = set()
        self._widths: dict[str, int] = {}
        self._signs, self._shown = 0, dict[tuple[str, int], int]()

    def changes(self) -> Generator[Changes]:
        """The group's changes from the position on, without end; about once a second when nothing happens."""
        self._consumption = Consumption(self._cluster, self._settings)
        try:
            yield from self._found(self._verified(self._position.topics))
            self._assign(self._position.topics)
            looked = -self._settings.discover
            while True:
                if time.monotonic() - looked >= self._settings.discover:
                    yield from self._discover()
                    looked = time.monotonic()
                yield from self._step(self._consumption.next())
        finally:
            self._consumption.close()

    def _step(self, consumed: Consumed) -> Generator[Changes]:
        records = self._own(consumed.records)
        missing = self._verified({*consumed.missing, *(str(record.topic()) for record in records)})
        rows, latest = self._rows(records)
        for (topic, q), at in consumed.ends.items():
            self._move(topic, q, at)
            self._read_to_end.add((topic, q))
        yield self._said(rows, latest)
        yield from self._found(missing)

    def _own(self, records: list[Message]) -> list[Message]:
        """The records of followed topics, without those that the client fetched before a topic was left."""
        return [record for record in records if record.topic() in self._position.topics]

    # -- records
    def _rows(self, records: Sequence[Message]) -> tuple[list[pa.RecordBatch], int]:
        topics: dict[str, list[Message]] = {}
        for record in records:
            topics.setdefault(str(record.topic()), []).append(record)
        latest, prefix = 0, self._settings.prefix
        rows: list[pa.RecordBatch] = []
        for topic, some in topics.items():
            rows += self._decoder.rows(topic.removeprefix(prefix), some, self._widths.get(topic, 1))
            latest = max(latest, *(record.timestamp()[1] for record in some))
            for record in some:
                self._move(topic, int(record.partition() or 0), int(record.offset() or 0) + 1, record.leader_epoch())
        return rows, latest

    def _move(self, topic: str, q: int, at: int, epoch: int | None = None) -> None:
        known = self._position.topics.get(topic)
        if known is not None and q in known.next and at > known.next[q][0]:
            known.next[q] = (at, known.next[q][1] if epoch is None else epoch)

    def _said(self, rows: Sequence[pa.RecordBatch] = (), latest: int = 0, **more: Any) -> Changes:
        """Changes with the present position.  Until every partition was read to its end no position is given twice: a
        run that only catches up would end there."""
        position, caught_up = self._position.stored(), self._caught_up()
        if not caught_up:
            self._signs += 1
            position["more"] = self._signs
        return Changes(rows, position, max(0, latest), caught_up=caught_up and not rows, **more)

    def _caught_up(self) -> bool:
        """Whether the follower has read every partition to its end once."""
        followed = {name: topic.next for name, topic in self._position.topics.items() if name not in self._gone}
        return all((name, q) in self._read_to_end for name, some in followed.items() for q in some)

    # -- topics
    def _verified(self, topics: Iterable[str]) -> list[str]:
        """Return those of the topics that do not exist.  `PositionLost` if a topic was deleted and made again, so that
        its id is another."""
        known = {name: self._position.topics[name].id for name in topics if name in self._position.topics}
        found = self._cluster.describe(known)
        for name, topic in found.items():
            if topic.id != known[name]:
                raise PositionLost(
                    f"the topic {name} of Kafka at {self._cluster.where} is not the one that was read: it was deleted "
                    f"and made again, or belongs to another cluster. {AFRESH}"
                )
        return [name for name in known if name not in found]

    def _found(self, missing: Sequence[str]) -> Generator[Changes]:
        """Stop following topics that were deleted.  Their positions stay, so that a new topic of the same name is known
        to be another one."""
        new = [name for name in missing if name not in self._gone]
        if not new:
            return
        assert self._consumption is not None
        self._consumption.leave(new)
        self._gone.update(new)
        for name in new:
            _log.warning("the topic %s of Kafka at %s is deleted; it is followed no more", name, self._cluster.where)
        yield self._said(ended=[name.removeprefix(self._settings.prefix) for name in new])

    def _discover(self) -> Generator[Changes]:
        """Look for new topics, for new partitions, and for topics that were deleted or are back."""
        there, prefix = self._cluster.topics(), self._settings.prefix
        self._widths = {name: len(partitions) for name, partitions in there.items()}
        data = namespaces_of(there, prefix)
        new = [name for name in data if name not in self._namespaces and name not in self._offered]
        if new:
            self._offered.update(new)
            yield self._said(appeared=new)
        missing = self._verified(self._position.topics)
        yield from self._found(missing)
        self._return_to(self._gone.difference(missing))
        followed = [prefix + name for name in data if name in self._namespaces]
        self._take_in({topic: there[topic] for topic in followed if topic not in self._gone})

    def _return_to(self, topics: Collection[str]) -> None:
        """Follow topics again that exist after all: one broker may know of a topic later than another."""
        self._gone.difference_update(topics)
        self._assign(topics)

    def _take_in(self, topics: Mapping[str, Sequence[int]]) -> None:
        """Follow the new partitions of these topics that belong to this group, from their first records."""
        new = [
            (name, q)
            for name, q in partitions_of(self._group, topics)
            if name not in self._position.topics or q not in self._position.topics[name].next
        ]
        if not new:
            return
        described = self._cluster.describe({name for name, _ in new})
        first = self._cluster.first_offsets(one for one in new if one[0] in described)
        for (name, q), at in first.items():
            self._begin(name, q, at, described[name])
        self._assign({name for name, _ in first}, first)

    def _begin(self, name: str, q: int, at: int, topic: TopicInfo) -> None:
        if at > 0:
            _log.warning(
                "partition %d of the topic %s is new here and begins at offset %d: what was before is gone", q, name, at
            )
        self._position.topics.setdefault(name, TopicPosition(topic.id)).next[q] = (at, -1)

    def _assign(self, topics: Iterable[str], only: Iterable[tuple[str, int]] | None = None) -> None:
        assert self._consumption is not None
        some = {
            (name, q): at
            for name in topics
            if name not in self._gone
            for q, at in self._position.topics[name].next.items()
        }
        chosen = set(some if only is None else only)
        self._consumption.assign({one: at for one, at in some.items() if one in chosen})

    def show(self, position: GroupPosition) -> None:
        """Commit the offsets that have changed since the last call, for the consumer group of the settings."""
        now = {(name, q): at for name, topic in position.topics.items() for q, (at, _) in topic.next.items()}
        moved = {one: at for one, at in now.items() if self._shown.get(one) != at}
        if moved and self._consumption is not None:
            self._consumption.show(moved)
            self._shown = now
