"""Stream copies: copy a table's changes into a topic, each change once.

    $StreamCopy-<topic id>_<table>, 0    seq, position (a token), records, id, page, topics[ids]

One transaction appends a batch of records and stores the token behind it (READER in the log's protocol).  So wherever a
process is killed, the next one continues from the stored token, and each change is in the topic once.  When two
processes copy the same table, one of them stores a batch; the other discards its own and continues behind the stored
one.
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
"""A batch ends after MAX_RECORDS records, or with the record that brings it to MAX_BYTES."""
TOKEN_SECONDS = 3600.0
"""How often a follower stores its token while the table does not change: a token older than 24 hours may be invalid."""
LONGEST_PAUSE = 1.0
"""Seconds between two looks at a stream that has nothing new, at most."""
NO_CHUNK = ""
"""The chunk id in the progress item after a write that stored only the token."""
OPS = {"insert": Op.INSERT, "modify": Op.UPDATE, "remove": Op.DELETE}


def copy_key(topic: str, table: str) -> Key:
    """The key of the item with a copy's progress."""
    return Key(f"$StreamCopy-{topic}_{table}")


@dataclass(slots=True)
class CopyProgress(SequenceGuard):
    """The guard of one batch: its write is refused if another process has copied since `seen` was read."""

    position: Any
    records: int

    def action(self, id: str, page: int) -> Update:
        """Store the token together with the id and the page of the batch's chunk."""
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
        """The progress item after this write."""
        moved = {"seq": self.seen["seq"] + 1, "records": self.seen["records"] + self.records}
        return {**self.seen, **moved, "position": self.position}


class StreamCopy:
    """Copies the changes of one table into one topic.  Made by `home.copy_stream(…)`; used by one thread.

    A record's key is the item's key as JSON; its value is the change as JSON (see `streams.document`) with the table's
    name; its time is that of the change; its op is insert, update or delete.  So the changes of one item are in one
    partition, in order."""

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
        """Whether an error or Ctrl-C interrupted the last batch: then the stream is ahead of the stored token."""

    def _begun(self) -> Steps[Item]:
        """Store the copy's first token, so that a copy that begins at "latest" begins there after a crash, too."""
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
            raise self._lost(error) from error

    def _lost(self, error: BadToken | PositionLost) -> BadToken | PositionLost:
        way_out = (
            f"`tailrace stream copy {self._table} {self._topic.name} --restart` begins again with what is kept; "
            "changes may be missing or come again: compare the topic with the table"
        )
        return type(error)(f"the copy cannot go on where it was: {error}. {way_out}")

    @property
    def records(self) -> int:
        """The number of changes that all processes have copied into the topic since the copy began."""
        return int(self._item["records"])

    @property
    def token(self) -> dict[str, Any]:
        """The token behind the last stored batch."""
        return dict(self._item["position"])

    def once(self) -> int:
        """Copy the changes up to now; returns how many this call has copied."""
        return sum(self.once_in_batches())

    def once_in_batches(self) -> Iterator[int]:
        """Copy the changes up to now; yields the size of each batch once it is in the topic."""
        while (done := self._batch()) is not None:
            yield done
        self._store_token()

    def follow(self, *, seconds: float | None = None) -> Iterator[int]:
        """Copy changes as they come, without end or until nothing is new after `seconds`; yields the size of each batch
        once it is in the topic."""
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
        """Stop the stream's threads."""
        self._stream.close()

    def __enter__(self) -> StreamCopy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- within
    def _batch(self) -> int | None:
        """Copy the next changes and return how many; 0 if another process copied them first, None if there are none.

        A batch that an error interrupts may be in the topic or not: the next call continues from the stored token."""
        if self._cut_off:
            item = self._store.run(guard.read(self._key))
            assert item is not None
            self._stream.move_to(item["position"])
            self._item = item
        self._cut_off = True
        try:
            copied = self._copy_next()
        except PositionLost as error:
            raise self._lost(error) from error
        self._cut_off = False
        return copied

    def _copy_next(self, most: int | None = None) -> int | None:
        """Copy up to `most` changes.  If a change cannot be read or copied, this call copies the changes before it, and
        the next call raises the error."""
        settings = self._topic.described.settings
        log = self._topic.log
        buffer = Buffer(log.partitions, settings.max_record_bytes, log.next_turn(), log.partitioner)
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
        # Another process may have moved the item since this write: this stream continues from its own batch.
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
        """Store the stream's token without a batch; continue from another process's token if that one was first."""
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
