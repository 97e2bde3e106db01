"""The position of a group of partitions: the next offset of each partition, and the id of each topic.

    {"splits": {"0/2": {"topics": {topic: [id, {partition: [next offset, leader epoch]}]}}, "1/2": …}}

A split is a group: the first number is the group's, the second the number of groups.  The hash of a topic's name gives
the group of its partition 0, and each following partition is in the following group.  So every receiver knows without
coordination which new partitions it must follow.  The leader epoch is that of the last record read, -1 if unknown: by
it the client notices that a partition was truncated and written again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Group(NamedTuple):
    """A group: its number, and how many groups there are."""

    number: int
    groups: int

    @classmethod
    def read(cls, split: str) -> Group:
        """Decode a group from the name of its split."""
        number, _, groups = split.partition("/")
        return cls(int(number), int(groups))

    @property
    def split(self) -> str:
        """The name of the group's split."""
        return f"{self.number}/{self.groups}"

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition belongs to this group."""
        return (zlib.crc32(topic.encode()) + partition) % self.groups == self.number


@dataclass(slots=True)
class TopicPosition:
    """How far a topic has been read: its id, and for each partition the next offset and the leader epoch."""

    id: str
    next: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class GroupPosition:
    """How far the topics of a group have been read."""

    topics: dict[str, TopicPosition] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """The position as JSON holds it."""
        return {
            "topics": {
                name: [topic.id, {str(q): list(at) for q, at in sorted(topic.next.items())}]
                for name, topic in self.topics.items()
            }
        }

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> GroupPosition:
        """Decode what `stored` returned; None gives an empty position."""
        topics = (stored or {}).get("topics", {})
        return cls(
            {
                name: TopicPosition(id, {int(q): (offset, epoch) for q, (offset, epoch) in at.items()})
                for name, (id, at) in topics.items()
            }
        )


def grouped(ids: Mapping[str, str], offsets: Mapping[tuple[str, int], int], count: int) -> dict[str, Any]:
    """The position of a pipeline that begins, with each partition in the group that it belongs to."""
    groups = {Group(number, count): GroupPosition() for number in range(count)}
    for (topic, q), offset in sorted(offsets.items()):
        group = next(group for group in groups if group.has(topic, q))
        groups[group].topics.setdefault(topic, TopicPosition(ids[topic])).next[q] = (offset, -1)
    return {"splits": {group.split: position.stored() for group, position in groups.items()}}


def partitions_of(group: Group, topics: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    """The partitions of these topics that belong to a group."""
    return [(topic, q) for topic, some in topics.items() for q in some if group.has(topic, q)]
