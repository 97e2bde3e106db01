"""Reading topics: copies the existing records by ranges of offsets, then follows new ones.

    position = {topic: [its id, {partition: copied}, {partition: read}]}

The copy has the records of a partition up to `copied`; everything up to `read` has been read.  A topic that appears
later is followed from its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.rows.records import rows_from
from tailrace.adaptors.topic.homes import HomeEnd
from tailrace.adaptors.topic.names import is_internal
from tailrace.adaptors.topic.settings import TopicSource
from tailrace.adaptors.topic.source.follower import Read, TopicsFollower, check_plain
from tailrace.errors import PositionLost, UnknownTopic
from tailrace.log.read.reader import Reader as LogReader
from tailrace.log.record import Mode


class TopicReader(HomeEnd, Reader):
    """Reads topics, except those that pipelines keep for themselves: commit logs, dead letters, ledgers."""

    follows = True

    def __init__(self, settings: TopicSource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(settings.home)
        self._settings, self._sleep = settings, sleep
        self._begun: Read | None = None
        self._planned: set[str] = set()

    def check(self) -> None:
        """Check that the home can be opened."""
        self._home.topics()

    def namespaces(self) -> list[Namespace]:
        """All topics, each with the number of records that it has."""
        found = []
        for name in self._topics():
            with suppress(UnknownTopic):  # deleted since it was listed
                ends = self._home.topic(name).ends().values()
                found.append(Namespace(name, sum(end - floor for floor, end in ends)))
        return found

    def _topics(self) -> list[str]:
        return [name for name in self._home.topics() if not is_internal(self._home, name)]

    def begin(self, namespaces: Sequence[str]) -> Position:
        """Return the present ends of all partitions: the records before them belong to the copy."""
        self._begun = {}
        for name in namespaces:
            with suppress(UnknownTopic):
                self._begun[name] = self._measured(name)
        return self._begun

    def begun(self, position: Position) -> None:
        """Receive the position that says which records belong to the copy."""
        self._begun = position

    def _measured(self, name: str) -> list[Any]:
        topic = self._home.topic(name)
        ends = {str(q): end for q, (_, end) in topic.ends().items()}
        return [topic.id, ends, dict(ends)]

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Cut a topic into ranges of offsets, each of one partition."""
        self._planned.add(namespace)
        known = self._begun if self._begun is not None else {namespace: self._measured(namespace)}
        if namespace not in known:
            return [Piece(namespace)]
        topic, out = self._home.topic(namespace), []
        id, copied, _ = known[namespace]
        for q, (floor, _) in topic.ends().items():
            end = copied.get(str(q), 0) if id == topic.id else 0
            for start in range(floor, end, max(1, rows)):
                to = min(end, start + rows)
                out.append(Piece(namespace, [id, q, start, to], to - start))
        return out or [Piece(namespace)]

    def copy(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, without those that retention has removed since; none if the topic was
        deleted.  Raises `PositionLost` if the topic was deleted and created again."""
        if piece.bounds is not None:
            with suppress(UnknownTopic):
                yield from self._copied(piece)

    def _copied(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        id, q, start, end = piece.bounds
        topic = self._home.topic(piece.namespace)
        if topic.id != id:
            raise PositionLost(f"the topic {piece.namespace!r} was deleted and made again while it was being copied")
        reader = LogReader(topic.log, {q: start}, from_floor=True, until={q: end})
        while fetched := topic.store.run(reader.poll()):
            for one in fetched:
                check_plain(piece.namespace, one.data)
                yield rows_from(piece.namespace, one, Mode.COPY)

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """Yield the records after a position, in order within each partition."""
        self._planned.update(namespaces)
        self._begun = position or {}
        read: Read = {name: [id, dict(copied), dict(at)] for name, (id, copied, at) in self._begun.items()}
        following = TopicsFollower(self._home, read, self._planned, self._topics)
        return following.run(self._settings.discover, self._settings.poll_seconds, self._sleep)
