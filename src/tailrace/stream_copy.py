"""Copying a table's changes into a topic, each once.

    $StreamCopy-<topic id>_<table>, 0    seq, position (a token), records, id, page, topics[ids]

A batch of records, and the token behind it, are one write: READER of the log's protocol.  So whatever ends a process
between any two lines, the next one goes on from the stored token, and each change is in the topic once.  Of two
processes that copy the same, one writes a batch, and the other throws its own away and goes on behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.rules import rules
from tailrace.errors import BadToken, PositionLost, TooLarge
from tailrace.log.record import Mode, Op, attributes
from tailrace.log.topic import Topic
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.guarded_append import SequenceGuard, commit_guarded
from tailrace.log.write.placement import place
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Absent, Action, Add, Change, Equals, Item, Key, Put, Set, Update
from tailrace.streams.document import document, encode
from tailrace.streams.engine import Engine
from tailrace.streams.following import FIRST_PAUSE
from tailrace.streams.record import Record
from tailrace.streams.stream import Start, Stream

MAX_RECORDS = 5_000
MAX_BYTES = 4 * 1024 * 1024
"""A batch has at most so many records, and ends with the one that brings it to so many bytes."""
TOKEN_SECONDS = 3600.0
"""While nothing changes the token is stored again this often: one that is older than 24 hours may lead nowhere."""
LONGEST_PAUSE = 1.0
NO_CHUNK = ""
"""In place of a chunk's id where only the token was stored."""
OPS = {"insert": Op.INSERT, "modify": Op.UPDATE, "remove": Op.DELETE}


def copy_key(topic: str, table: str) -> Key:
    """Where a copy's progress is."""
    return Key(f"$StreamCopy-{topic}_{table}")


@dataclass(slots=True)
class CopyProgress(SequenceGuard):
    """The guard of one batch: no other process has copied since the item was seen."""

    position: Any
    records: int

    def action(self, id: str, page: int) -> Update:
        """Move the token, with the chunk that it belongs to."""
        changes: tuple[Change, ...] = (
            Add("seq", 1),
            Add("records", self.records),
            Set("position", self.position),
            Set("id", id),
            Set("page", page),
        )
        return Update(self.key, changes, rules({"reader.seq": Equals("seq", self.seen["seq"])}))

    @property
    def written(self) -> Item:
        """The item behind this write."""
        moved = {"seq": self.seen["seq"] + 1, "records": self.seen["records"] + self.records}
        return {**self.seen, **moved, "position": self.position}


class StreamCopy:
    """Copies the changes of one table into one topic.  Used by one thread; `home.copy_stream(…)` gives one.

    A record has the item's key as JSON, the change as JSON (see `streams.document`) with the table's name, the time of
    the change, and insert, update or delete as its op: changes of one item are in one partition, in order."""

    def __init__(self, store: Store, engine: Engine, topic: Topic, table: str, start: Start, *, restart: bool) -> None:
        self._store, self._topic, self._table = store, topic, table
        self._key = copy_key(topic.id, table)
        item = store.run(guard.read(self._key))
        if item is None or restart:
            self._stream: Stream[Record[dict[str, Any]]] = engine.stream(table, start)
            self._item = store.run(self._begun())
        else:
            self._stream, self._item = self._resumed(engine, item), item
        self._stored_at = time.monotonic()
        self._cut_off = False
        """Whether a batch was begun that an error or Ctrl-C has cut off: the stream is ahead of what is stored."""

    def _begun(self) -> Steps[Item]:
        """Store where the copy begins, so that a start at "latest" is the same place after a crash."""
        token = self._stream.token
        fresh = {"seq": 0, "position": token, "records": 0, "id": NO_CHUNK, "page": 0, "topics": [self._topic.id]}

        def plan(item: Item | None) -> tuple[Action, ...] | None:
            if item is None:
                return (Put(self._key, fresh, (Absent(),)),)
            if (item["position"], item["id"]) == (token, NO_CHUNK):
                return None
            return (CopyProgress(self._key, item, token, 0).action(NO_CHUNK, 0),)

        item = yield from guard.settle(self._key, plan)
        assert item is not None
        return item

    def _resumed(self, engine: Engine, item: Item) -> Stream[Record[dict[str, Any]]]:
        try:
            stream = engine.stream(self._table, item["position"])
            stream.check()
            return stream
        except (BadToken, PositionLost) as error:
            way_out = (
                f"`tailrace stream copy {self._table} {self._topic.name} --restart` begins again with what is kept; "
                "changes may be missing or come again: compare the topic with the table"
            )
            raise type(error)(f"the copy cannot go on where it was: {error}. {way_out}") from error

    @property
    def records(self) -> int:
        """How many changes were copied into the topic, by any process, since the copy began."""
        return int(self._item["records"])

    @property
    def token(self) -> dict[str, Any]:
        """Where the copy stands, as it is stored."""
        return dict(self._item["position"])

    def once(self) -> int:
        """Copy what there is now; gives how many changes this call has copied."""
        return sum(self.once_in_batches())

    def once_in_batches(self) -> Iterator[int]:
        """Copy what there is now; gives the size of each batch, once it is in the topic."""
        while (done := self._batch()) is not None:
            yield done
        self._store_token()

    def follow(self, *, seconds: float | None = None) -> Iterator[int]:
        """Copy changes as they come, without end or for so many seconds; gives the size of each batch, once it is
        in the topic."""
        end, pause = None if seconds is None else time.monotonic() + seconds, FIRST_PAUSE
        while True:
            if (done := self._batch()) is not None:
                pause = FIRST_PAUSE
                yield done
                continue
            if time.monotonic() - self._stored_at > TOKEN_SECONDS:
                self._store_token()
            if end is not None and time.monotonic() >= end:
                return
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def close(self) -> None:
        """Give up the stream's threads."""
        self._stream.close()

    def __enter__(self) -> StreamCopy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- within
    def _batch(self) -> int | None:
        """Copy the next changes: how many, 0 if another process was quicker; None if there are none right now.

        A batch that is cut off by an error may be in the topic or not: the next call goes on behind what is stored."""
        if self._cut_off:
            item = self._store.run(guard.read(self._key))
            assert item is not None
            self._stream.move_to(item["position"])
            self._item = item
        self._cut_off = True
        copied = self._copy_next()
        self._cut_off = False
        return copied

    def _copy_next(self, most: int | None = None) -> int | None:
        """Copy up to so many.  What comes before a change that cannot be read or copied is copied first: then the next
        call meets the error."""
        settings = self._topic.described.settings
        buffer = Buffer(self._topic.log.partitions, settings.max_record_bytes, self._topic.log.next_turn())
        while buffer.rows < (most or MAX_RECORDS) and buffer.size < MAX_BYTES:
            try:
                record = next(self._stream)
            except Exception:
                if buffer.rows:
                    break
                raise
            if record is None:
                break
            try:
                self._add(buffer, record)
            except Exception:
                if not buffer.rows:
                    raise
                self._stream.move_to(self._item["position"])
                return self._copy_next(buffer.rows)
        if not buffer.rows:
            return None
        chunk = buffer.encode(settings.compression)
        placed = self._store.run(place(self._topic.log, chunk))
        progress = CopyProgress(self._key, self._item, self._stream.token, buffer.rows)
        won, item = self._store.run(commit_guarded([placed], progress))
        # An item that is read after the write may be ahead of this stream already, by another process's batch.
        self._item, self._stored_at = progress.written if item is None else item, time.monotonic()
        if not won:
            self._stream.move_to(self._item["position"])
        return buffer.rows if won else 0

    def _add(self, buffer: Buffer, record: Record[dict[str, Any]]) -> None:
        change = document(record)
        key, value = encode(change["key"]), encode({"table": self._table, **change})
        marks = attributes(Mode.SYNC, OPS[record.meta.event.type])
        try:
            buffer.add(key, value, change["meta"]["created_at"], None, marks)
        except TooLarge as error:
            raise TooLarge(f"the change of item {key.decode():.200} of table {self._table!r}: {error}") from None

    def _store_token(self) -> None:
        """Store where the stream stands though nothing was copied."""
        progress = CopyProgress(self._key, self._item, self._stream.token, 0)
        outcome = self._store.run(guard.attempt(progress.action(NO_CHUNK, 0)))
        self._stored_at = time.monotonic()
        if isinstance(outcome, guard.Written):
            self._item = progress.written
            return
        item = self._store.run(progress.read())
        if progress.moved(item):
            self._item = item
            self._stream.move_to(item["position"])
