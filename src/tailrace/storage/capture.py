"""Capture: the changes of a SQLite table, in the shape of DynamoDB Streams.

Triggers write a record in the transaction of the change itself, whichever process makes it.  They live in the
database, so capture stays on until the table is gone:

    <table>_stream   id, view: one row, made when capture was switched on
    <table>_changes  n INTEGER PRIMARY KEY (the sequence, without gaps), at (ms), kind, p, i, old, new
    <table>_shards   first (sequence), parent (its first), opened (ms)

There is one open shard.  It rolls when it has `ROLL_RECORDS` records or is `ROLL_SECONDS` old: the next record begins
its child.  Records are kept for 24 hours: each new one trims a few that are older, and so does reading.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import apsw

from tailrace.errors import BadInput, BadSetting, NotThere
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.database import Database, fetch
from tailrace.storage.packing import unpack
from tailrace.storage.tables import PAGE_BYTES, Key

T = TypeVar("T")

ROLL_RECORDS = 100_000
ROLL_SECONDS = 4 * 3600
KEPT_SECONDS = 24 * 3600
ITERATOR_SECONDS = 15 * 60


def switch_on(database: Database, table: str, view: View, roll_records: int, roll_seconds: float) -> Capture:
    """Have a table's changes recorded from now on; gives the reader of what is recorded."""
    if view not in get_args(View):
        raise BadSetting.unknown("a capture", view, get_args(View))
    return Capture(
        database, table, view, database.write(_switch_on, table, view, roll_records, int(roll_seconds * 1000))
    )


class Capture:
    """Keeps `Changes`, of one table."""

    def __init__(self, database: Database, table: str, view: View, stream: str) -> None:
        self._database, self._table, self.view, self._stream = database, table, view, stream

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        bounds, horizon = self._look(self._bounds_and_horizon)
        if bounds and horizon > bounds[0][0]:
            self._database.write(self._trim, horizon)
        kept = [b for b in bounds if b[2] is None or b[2] > horizon]
        return [Shard(self._name(f), p and self._name(p), _text(f), end and _text(end - 1)) for f, p, end in kept]

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard.  Valid for 15 minutes; `NotThere` for a trimmed or unknown shard or sequence."""
        if (start in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")) != (sequence is not None and sequence.isdigit()):
            raise BadInput(f"{start} with sequence {sequence!r}: only AT_ and AFTER_SEQUENCE_NUMBER take one, and must")
        return self._look(self._place, shard, start, int(sequence or 0))

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
        try:
            stream, first, position, made = iterator.split("|")
            numbers = int(first), int(position), int(made)
        except ValueError:
            raise BadInput(f"not an iterator: {iterator!r:.80}") from None
        if stream != self._stream:
            raise NotThere(f"the iterator is of another stream than that of table {self._table!r}")
        if self._now() - numbers[2] > ITERATOR_SECONDS * 1000:
            raise NotThere("the iterator is older than 15 minutes; make a new one after the last sequence number seen")
        return self._look(self._read, numbers[0], numbers[1], limit)

    def _look(self, work: Callable[..., T], *arguments: Any) -> T:
        answer: T = self._database.read(_snapshot, work, *arguments)
        return answer

    # --- inside one read transaction ---
    def _bounds_and_horizon(self, cursor: apsw.Cursor) -> tuple[list[tuple[Any, ...]], int]:
        """Each shard's first, its parent's first and its child's first; and the oldest sequence still to be seen."""
        sql = f"SELECT first, parent, lead(first) OVER (ORDER BY first) FROM {self._table}_shards ORDER BY first"
        return fetch(cursor, sql), self._horizon(cursor)

    def _horizon(self, cursor: apsw.Cursor) -> int:
        sql = f"SELECT n FROM {self._table}_changes WHERE at >= ? ORDER BY n LIMIT 1"
        young = fetch(cursor, sql, (self._now() - KEPT_SECONDS * 1000,))
        return int(young[0][0]) if young else self._next(cursor)

    def _next(self, cursor: apsw.Cursor) -> int:
        return int(fetch(cursor, f"SELECT ifnull(max(n), 0) + 1 FROM {self._table}_changes")[0][0])

    def _shard(self, cursor: apsw.Cursor, shard: str) -> tuple[int, int | None, int]:
        bounds, horizon = self._bounds_and_horizon(cursor)
        for first, _, end in bounds:
            if self._name(first) == shard and (end is None or end > horizon):
                return first, end, horizon
        raise NotThere(f"there is no shard {shard!r} in the changes of {self._table!r}, or no more")

    def _place(self, cursor: apsw.Cursor, shard: str, start: Start, sequence: int) -> str:
        first, end, horizon = self._shard(cursor, shard)
        last = (end or self._next(cursor)) - 1
        if start == "TRIM_HORIZON":
            return self._iterator(first, 0)
        if start == "LATEST":
            return self._iterator(first, last + 1)
        position = sequence + (start == "AFTER_SEQUENCE_NUMBER")
        if not first <= sequence <= last or position < horizon:
            raise NotThere(f"sequence {sequence} is not in shard {shard!r} (any more)")
        return self._iterator(first, position)

    def _read(self, cursor: apsw.Cursor, first: int, position: int, limit: int) -> Read:
        _, end, horizon = self._shard(cursor, self._name(first))
        if position and position < horizon:
            raise NotThere(f"the changes from sequence {position} on were trimmed; go on at TRIM_HORIZON")
        begin = max(position, first, horizon)
        sql = f"SELECT * FROM {self._table}_changes WHERE n >= ? AND n < ? ORDER BY n LIMIT ?"
        changes: list[Change] = []
        size, reached = 0, begin
        row: Any
        for row in cursor.execute(sql, (begin, end or 2**62, limit)):
            size += len(row[5] or b"") + len(row[6] or b"")
            if size > PAGE_BYTES and changes:
                break
            changes.append(self._change(*row))
            reached = row[0] + 1
        return Read(changes, None if reached == end else self._iterator(first, reached))

    # --- values ---
    def _change(self, n: int, at: int, kind: Any, p: str, i: int, old: bytes | None, new: bytes | None) -> Change:
        when = datetime.fromtimestamp(at / 1000, UTC)
        items = [None if body is None else unpack(body) for body in (new, old)]
        return Change(f"{self._stream}-{n}", kind, _text(n), when, Key(p, i), *items)

    def _trim(self, cursor: apsw.Cursor, horizon: int) -> None:
        # The newest record stays, however old, since the next one takes its number from it.
        cursor.execute(f"DELETE FROM {self._table}_changes WHERE n < min(?, ?)", (horizon, self._next(cursor) - 1))
        cursor.execute(_FORGET_SHARDS.format(table=self._table))

    def _iterator(self, first: int, position: int) -> str:
        return f"{self._stream}|{first}|{position}|{self._now()}"

    def _name(self, first: int) -> str:
        return f"shardId-{first:020d}-{self._stream}"

    def _now(self) -> int:
        return int(self._database.clock() * 1000)


def _snapshot(cursor: apsw.Cursor, work: Callable[..., T], *arguments: Any) -> T:
    """Work whose queries all see the same moment."""
    cursor.execute("BEGIN")
    try:
        return work(cursor, *arguments)
    finally:
        cursor.execute("COMMIT")


def _text(sequence: int) -> str:
    return f"{sequence:020d}"


def _switch_on(cursor: apsw.Cursor, table: str, view: View, roll_records: int, roll_ms: int) -> str:
    if fetch(cursor, "SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{table}_stream",)):
        stream, stored = fetch(cursor, f"SELECT id, view FROM {table}_stream")[0]
        if stored != view:
            raise BadSetting(f"table {table!r} captures {stored!r}, not {view!r}; that cannot be changed")
        return str(stream)
    old = "OLD.body" if view in ("old", "both") else "NULL"
    new = "NEW.body" if view in ("new", "both") else "NULL"
    cursor.execute(
        _SCHEMA.format(table=table, old=old, new=new, records=roll_records, ms=roll_ms, kept=KEPT_SECONDS * 1000)
    )
    stream = uuid.uuid4().hex[:16]
    cursor.execute(f"INSERT INTO {table}_stream (id, view) VALUES (?, ?)", (stream, view))
    return stream


_FORGET_SHARDS = """
DELETE FROM {table}_shards WHERE first < (SELECT max(first) FROM {table}_shards
    WHERE first <= (SELECT min(n) FROM {table}_changes));
"""

_SCHEMA = (
    """
CREATE TABLE {table}_stream (id TEXT NOT NULL, view TEXT NOT NULL);
CREATE TABLE {table}_changes (n INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, p TEXT NOT NULL,
    i INTEGER NOT NULL, old BLOB, new BLOB);
CREATE TABLE {table}_shards (first INTEGER PRIMARY KEY, parent INTEGER, opened INTEGER NOT NULL);
INSERT INTO {table}_shards VALUES (1, NULL, tailrace_now());

CREATE TRIGGER {table}_inserted AFTER INSERT ON {table} BEGIN
    INSERT INTO {table}_changes (at, kind, p, i, new) VALUES (tailrace_now(), 'INSERT', NEW.p, NEW.i, {new});
END;
CREATE TRIGGER {table}_modified AFTER UPDATE ON {table} WHEN OLD.body IS NOT NEW.body BEGIN
    INSERT INTO {table}_changes (at, kind, p, i, old, new)
        VALUES (tailrace_now(), 'MODIFY', NEW.p, NEW.i, {old}, {new});
END;
CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
    INSERT INTO {table}_changes (at, kind, p, i, old) VALUES (tailrace_now(), 'REMOVE', OLD.p, OLD.i, {old});
END;
CREATE TRIGGER {table}_recorded AFTER INSERT ON {table}_changes BEGIN
    INSERT INTO {table}_shards
        SELECT NEW.n, first, NEW.at FROM (SELECT first, opened FROM {table}_shards ORDER BY first DESC LIMIT 1)
        WHERE NEW.n - first >= {records} OR (NEW.n > first AND NEW.at - opened >= {ms});
    DELETE FROM {table}_changes WHERE n IN (
        SELECT n FROM (SELECT n, at FROM {table}_changes ORDER BY n LIMIT 2) WHERE n < NEW.n AND at < NEW.at - {kept});
"""
    + _FORGET_SHARDS
    + "END;"
)
