"""Following topics: yields new records, in order within each partition, with the position after them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.rows.records import rows_from
from tailrace.errors import BadInput, OutOfRange, PositionLost, UnknownTopic
from tailrace.home import Home
from tailrace.log.read.reader import Reader
from tailrace.log.record import Mode

Read = dict[str, list[Any]]
"""How far each topic has been read: [id, {partition: copied}, {partition: read}]."""


class TopicsFollower:
    """Follows the topics of a home.  `wanted` are the topics to follow, and may grow.  `others` returns all topics that
    can be followed, so that new ones are found."""

    def __init__(self, home: Home, read: Read, wanted: set[str], others: Callable[[], list[str]]) -> None:
        self._home, self._read, self._wanted, self._others = home, read, wanted, others
        self._offered: set[str] = set()
        self._readers: dict[str, Reader] = {}

    def run(self, discover: float, poll: float, sleep: Callable[[float], None]) -> Iterator[Changes]:
        """Yield changes until the caller closes the iterator; one without rows when no records have come.

        `discover`: seconds between two looks for new topics.  `poll`: seconds to sleep when no records have come."""
        looked = -discover
        while True:
            if time.monotonic() - looked >= discover:
                looked = time.monotonic()
                yield from self._discover()
            came = False
            for name in list(self._readers):
                if changes := self._poll(name):
                    came = True
                    yield changes
            if not came:
                yield Changes((), self._position())
                sleep(poll)

    def _discover(self) -> Iterator[Changes]:
        new = [name for name in self._others() if name not in self._wanted | self._offered]
        self._offered.update(new)
        if new:
            yield Changes((), self._position(), appeared=new)
        for name in sorted(self._wanted):
            self._open(name)

    def _open(self, name: str) -> None:
        """Make a reader for a topic if the topic exists.  Raises `PositionLost` if it is not the topic that was
        read."""
        try:
            topic = self._home.topic(name)
            ends = topic.ends()
        except UnknownTopic:
            self._read.pop(name, None)
            self._readers.pop(name, None)
            return
        if name not in self._read:
            self._read[name] = [topic.id, {}, {str(q): 0 for q in range(topic.partitions)}]
        id, _, read = self._read[name]
        if id != topic.id:
            raise _lost(name, "it was deleted and made again, or it is of another home")
        if name not in self._readers:
            for q, (_, end) in ends.items():
                if read.get(str(q), 0) > end:
                    raise _lost(name, f"it was read up to {q}:{read[str(q)]}, and ends at {q}:{end}: an older copy")
            self._readers[name] = Reader(topic.log, {int(q): at for q, at in read.items()}, every=True)

    def _poll(self, name: str) -> Changes | None:
        try:
            fetched = self._home.store.run(self._readers[name].poll())
        except UnknownTopic:  # deleted just now
            return None
        except OutOfRange as error:
            raise PositionLost(f"{error}; only a fresh copy makes up for it, under another pipeline's name") from error
        for one in fetched:
            check_plain(name, one.data)
            self._read[name][2][str(one.partition)] = one.end
        rows = [rows_from(name, one, Mode.SYNC) for one in fetched if one.data.num_rows]
        latest = max((row.column("timestamp")[-1].value for row in rows), default=0)
        return Changes(rows, self._position(), committed_at=latest) if fetched else None

    def _position(self) -> Read:
        return {name: [id, copied, dict(at)] for name, (id, copied, at) in self._read.items()}


def _lost(topic: str, why: str) -> PositionLost:
    """The error for a topic that is not the one that was read so far."""
    return PositionLost(
        f"the topic {topic!r} is not what the pipeline has read: {why}.  Point the source at the home that was read; "
        "else copy afresh: give the pipeline another name, and empty its sinks"
    )


def check_plain(topic: str, data: pa.RecordBatch) -> None:
    """Raise `BadInput` before a topic is followed that holds the rows of a pipeline, not records."""
    if "value" not in data.schema.names:
        raise BadInput(
            f"the topic {topic!r} holds rows, not records: it is a pipeline's own; leave it out by namespace"
        )
