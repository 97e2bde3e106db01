"""The position of a group of partitions: of each the next offset, and of each topic its id.

    {"splits": {"0/2": {"topics": {topic: [id, {partition: [next offset, leader epoch]}]}}, "1/2": …}}

A split is a group: the first number says which, the second how many there are.  The hash of a topic's name says in
which group its first partition is; the next one is in the next.  So every receiver knows without asking which new ones
are its own.  The leader epoch, -1 if it is not known, is that of the last record read: a log that was cut off and
written again behind it is known by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Group(NamedTuple):
    """Which group of how many."""

    number: int
    groups: int

    @classmethod
    def read(cls, split: str) -> Group:
        """From the name of a split."""
        number, _, groups = split.partition("/")
        return cls(int(number), int(groups))

    @property
    def split(self) -> str:
        """The name of its split."""
        return f"{self.number}/{self.groups}"

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition is in it."""
        return (zlib.crc32(topic.encode()) + partition) % self.groups == self.number


@dataclass(slots=True)
class TopicPosition:
    """How far a topic, known by its id, has been read: of each partition the next offset and the leader epoch."""

    id: str
    next: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class GroupPosition:
    """How far the topics of a group have been read."""

    topics: dict[str, TopicPosition] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "topics": {
                name: [topic.id, {str(q): list(at) for q, at in sorted(topic.next.items())}]
                for name, topic in self.topics.items()
            }
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> GroupPosition:
        """From what is stored."""
        topics = (stored or {}).get("topics", {})
        return cls(
            {
                name: TopicPosition(id, {int(q): (offset, epoch) for q, (offset, epoch) in at.items()})
                for name, (id, at) in topics.items()
            }
        )


def grouped(ids: Mapping[str, str], offsets: Mapping[tuple[str, int], int], count: int) -> dict[str, Any]:
    """The position of a pipeline that begins: every partition in its group."""
    groups = {Group(number, count): GroupPosition() for number in range(count)}
    for (topic, q), offset in sorted(offsets.items()):
        group = next(group for group in groups if group.has(topic, q))
        groups[group].topics.setdefault(topic, TopicPosition(ids[topic])).next[q] = (offset, -1)
    return {"splits": {group.split: position.stored() for group, position in groups.items()}}


def partitions_of(group: Group, topics: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    """The partitions of some topics that are in a group."""
    return [(topic, q) for topic, some in topics.items() for q in some if group.has(topic, q)]
