"""Reading topics: what is there is copied by ranges of offsets, what comes is followed.

    position = {topic: [its id, {partition: copied}, {partition: read}]}

`copied`: up to there a partition belongs to the copy; `read`: up to there it has been read.  A topic that comes later
is followed from its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Namespace, Piece, Position, Reader
from tailrace.adaptors.tailrace_topic.homes import open_once
from tailrace.adaptors.tailrace_topic.records import rows_from
from tailrace.adaptors.tailrace_topic.settings import TopicSource
from tailrace.coordination import guard
from tailrace.errors import BadInput, OutOfRange, PositionLost, UnknownTopic
from tailrace.home import Home
from tailrace.log.intake import reader_key
from tailrace.log.reader import Reader as LogReader
from tailrace.log.record import Mode
from tailrace.log.topic import Topic

Read = dict[str, list[Any]]


class TopicReader(Reader):
    """Reads topics.  Those that pipelines keep for themselves, commit logs, dead letters, ledgers, are left out."""

    follows: ClassVar[bool] = True

    def __init__(self, settings: TopicSource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings, self._sleep = settings, sleep
        self._begun: Read | None = None
        self._planned: set[str] = set()

    @property
    def _home(self) -> Home:
        return open_once(self._settings.home)

    def check(self) -> None:
        """Open the home."""
        self._home.topics()

    def namespaces(self) -> list[Namespace]:
        """All topics, and how many records each keeps."""
        out = []
        for name in self._home.topics():
            if not self._is_internal(name):
                ends = self._home.topic(name).ends().values()
                out.append(Namespace(name, sum(end - floor for floor, end in ends)))
        return out

    def _is_internal(self, name: str) -> bool:
        pipeline, _, kind = name.rpartition("-")
        if kind not in ("log", "dead", "actions") or not pipeline:
            return False
        item = self._home.store.run(guard.read(reader_key(pipeline)))
        return item is not None and "begun" in item

    def begin(self, namespaces: Sequence[str]) -> Position:
        """All records that are there now belong to the copy."""
        self._begun = {name: self._measured(name) for name in namespaces}
        return self._begun

    def begun(self, position: Position) -> None:
        """What belongs to the copy, as an earlier run has fixed it."""
        self._begun = position

    def _measured(self, name: str) -> list[Any]:
        topic = self._home.topic(name)
        ends = {str(q): end for q, (_, end) in topic.ends().items()}
        return [topic.id, ends, dict(ends)]

    def pieces(self, namespace: str, rows: int) -> list[Piece]:
        """Ranges of offsets of a partition."""
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
        """The records of one range; what retention has removed by now is not among them."""
        if piece.bounds is None:
            return
        id, q, start, end = piece.bounds
        topic = self._home.topic(piece.namespace)
        if topic.id != id:
            raise PositionLost(f"the topic {piece.namespace!r} was deleted and made again while it was being copied")
        reader = LogReader(topic.log, {q: start}, from_floor=True, until={q: end})
        while fetched := topic.store.run(reader.poll()):
            for one in fetched:
                _check_plain(piece.namespace, one.data)
                yield rows_from(piece.namespace, one, Mode.COPY)

    # -- following
    def follow(self, position: Position, namespaces: Sequence[str], state: Mapping[str, Any]) -> Iterator[Changes]:
        """Records after a position, in order within each partition."""
        self._planned.update(namespaces)
        self._begun = position or {}
        read: Read = {name: [id, dict(copied), dict(at)] for name, (id, copied, at) in (position or {}).items()}
        readers: dict[str, LogReader] = {}
        looked, offered = 0.0, set[str]()
        while True:
            if time.monotonic() - looked >= self._settings.discover or not looked:
                looked = time.monotonic()
                new = [n for n in self._home.topics() if n not in self._planned | offered and not self._is_internal(n)]
                offered.update(new)
                if new:
                    yield Changes((), _copied(read), appeared=new)
                self._open(read, readers)
            came = False
            for name, reader in readers.items():
                for changes in self._poll(name, reader, read):
                    came = True
                    yield changes
            if not came:
                yield Changes((), _copied(read))
                self._sleep(self._settings.poll_seconds)

    def _open(self, read: Read, readers: dict[str, LogReader]) -> None:
        """A reader for every topic that is wanted and there; one made again under its name is new."""
        for name in sorted(self._planned):
            try:
                topic = self._home.topic(name)
            except UnknownTopic:
                read.pop(name, None)
                readers.pop(name, None)
                continue
            if name not in read or read[name][0] != topic.id:
                read[name] = [topic.id, {}, {str(q): 0 for q in range(topic.partitions)}]
                readers.pop(name, None)
            if name not in readers:
                readers[name] = LogReader(topic.log, {int(q): at for q, at in read[name][2].items()})

    def _poll(self, name: str, reader: LogReader, read: Read) -> Iterator[Changes]:
        try:
            fetched = self._home.store.run(reader.poll())
        except OutOfRange as error:
            raise PositionLost(
                f"{error}; what is lost can only be made up by a fresh copy, under another name"
            ) from error
        if fetched:
            for one in fetched:
                _check_plain(name, one.data)
                read[name][2][str(one.partition)] = one.end
            rows = [rows_from(name, one, Mode.SYNC) for one in fetched if one.data.num_rows]
            latest = max((row.column("timestamp")[-1].value for row in rows), default=0)
            yield Changes(rows, _copied(read), committed_at=latest)


def _copied(read: Read) -> Read:
    return {name: [id, copied, dict(at)] for name, (id, copied, at) in read.items()}


def _check_plain(topic: str, data: pa.RecordBatch) -> None:
    if "value" not in data.schema.names:
        raise BadInput(
            f"the topic {topic!r} holds rows, not records: it is a pipeline's own; leave it out by namespace"
        )


def topic_of(home: Home, name: str, partitions: int) -> Topic:
    """A topic, made if it is not there; one that is there keeps its partitions."""
    try:
        return home.topic(name)
    except UnknownTopic:
        return home.topic(name, partitions)
