"""Capture: the changes of a SQLite table, in the shape of DynamoDB Streams.

Triggers write a record in the transaction of the change itself, whichever process makes the change.  They live in the
database, so capture stays on until the table is gone:

    <table>_stream   id, view: one row, made when capture was switched on
    <table>_changes  n INTEGER PRIMARY KEY (the sequence, without gaps), at (ms), kind, p, i, old, new
    <table>_shards   first (sequence), parent (its first), opened (ms)

There is one open shard.  It rolls when it has `ROLL_RECORDS` records or is `ROLL_SECONDS` old: the next record begins
its child.  Records are kept for 24 hours: each new one trims a few that are older, and so does reading.  A closed shard
is listed as long as the record behind it is kept: whoever had read it to its end goes on with the child.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar, get_args

import apsw

from tailrace.errors import BadInput, BadSetting, IteratorExpired, NotThere, Trimmed
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.sqlite.codec import unpack
from tailrace.storage.sqlite.connection import fetch
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.tables import PAGE_BYTES

T = TypeVar("T")

ROLL_RECORDS = 100_000
ROLL_SECONDS = 4 * 3600
KEPT_SECONDS = 24 * 3600
ITERATOR_SECONDS = 15 * 60


class CaptureFilter(NamedTuple):
    """Which items of a home's table are captured: those with this range key whose hash key does not have this
    prefix."""

    range: int
    no_prefix: str


def switch_on(
    database: SqliteDatabase,
    table: str,
    view: View,
    roll_records: int,
    roll_seconds: float,
    schema: KeySchema = HOME,
    only: CaptureFilter | None = None,
) -> Capture:
    """Record a table's changes from now on, of all items or of some; returns their reader."""
    if view not in get_args(View):
        raise BadSetting.unknown("a capture", view, get_args(View))
    stream = database.write(_switch_on, table, view, roll_records, int(roll_seconds * 1000), only)
    return Capture(database, table, view, stream, schema)


class Capture:
    """The `Changes` of one table."""

    def __init__(self, database: SqliteDatabase, table: str, view: View, stream: str, schema: KeySchema = HOME) -> None:
        self._database, self._table, self.view, self._stream, self._schema = database, table, view, stream, schema

    @property
    def stream(self) -> str:
        """The id that the stream was given when capture was switched on."""
        return self._stream

    def current(self) -> str | None:
        """The id of the table's stream now; `NotThere` if the table is gone."""
        return self._look(self._current)

    def time(self) -> float:
        """The time by this machine's clock, which the database's writers use."""
        return self._database.clock()

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """The end of a shard: after its newest change, or its beginning while it has none."""
        return self._look(self._end, shard)

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        bounds, horizon = self._look(self._bounds_and_horizon)
        if bounds and horizon > bounds[0][0]:
            self._database.write(self._trim, horizon)
        kept = [b for b in bounds if b[2] is None or b[2] >= horizon]
        return [Shard(self._name(f), p and self._name(p), _text(f), end and _text(end - 1)) for f, p, end in kept]

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard, valid for 15 minutes."""
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
            raise IteratorExpired(
                "the iterator is older than 15 minutes; make a new one after the last sequence number seen"
            )
        return self._look(self._read, numbers[0], numbers[1], limit)

    def _look(self, work: Callable[..., T], *arguments: Any) -> T:
        answer: T = self._database.read(_snapshot, work, *arguments)
        return answer

    # --- inside one read transaction ---
    def _bounds_and_horizon(self, cursor: apsw.Cursor) -> tuple[list[tuple[Any, ...]], int]:
        """For each shard, its first sequence, its parent's and its child's; and the oldest sequence that is still
        readable."""
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
            if self._name(first) == shard and (end is None or end >= horizon):
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
        if sequence > last:
            raise Trimmed(
                f"sequence {sequence} is beyond the end of shard {shard!r}, {last}: this table is older than the place "
                "in it, as one that was restored from a backup"
            )
        if sequence < first:
            raise Trimmed(f"sequence {sequence} is not in shard {shard!r}")
        if position < horizon:
            raise Trimmed(f"the changes after sequence {sequence} of shard {shard!r} are no longer kept")
        return self._iterator(first, position)

    def _end(self, cursor: apsw.Cursor, shard: str) -> tuple[Start, str | None]:
        first, end, _ = self._shard(cursor, shard)
        last = (end or self._next(cursor)) - 1
        return ("AFTER_SEQUENCE_NUMBER", _text(last)) if last >= first else ("TRIM_HORIZON", None)

    def _current(self, cursor: apsw.Cursor) -> str | None:
        there = {name for (name,) in fetch(cursor, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if self._table not in there:
            raise NotThere(f"there is no table {self._table!r} any more")
        if f"{self._table}_stream" not in there:
            return None
        return str(fetch(cursor, f"SELECT id FROM {self._table}_stream")[0][0])

    def _read(self, cursor: apsw.Cursor, first: int, position: int, limit: int) -> Read:
        _, end, horizon = self._shard(cursor, self._name(first))
        if position and position < horizon:
            raise Trimmed(f"the changes from sequence {position} on were trimmed; go on at TRIM_HORIZON")
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
    def _change(self, n: int, at: int, kind: Any, p: Any, i: Any, old: bytes | None, new: bytes | None) -> Change:
        when = datetime.fromtimestamp(at / 1000, UTC)
        now, before = None if new is None else unpack(new), None if old is None else unpack(old)
        return Change(f"{self._stream}-{n}", kind, _text(n), when, self._schema.from_columns(p, i), now, before)

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
    """Run work whose queries all see the same state."""
    cursor.execute("BEGIN")
    try:
        return work(cursor, *arguments)
    finally:
        cursor.execute("COMMIT")


def _text(sequence: int) -> str:
    return f"{sequence:020d}"


def _switch_on(
    cursor: apsw.Cursor, table: str, view: View, roll_records: int, roll_ms: int, only: CaptureFilter | None
) -> str:
    if fetch(cursor, "SELECT 1 FROM sqlite_schema WHERE name = ?", (f"{table}_stream",)):
        stream, stored = fetch(cursor, f"SELECT id, view FROM {table}_stream")[0]
        if stored != view:
            raise BadSetting(f"table {table!r} captures {stored!r}, not {view!r}; that cannot be changed")
        return str(stream)
    old = "OLD.body" if view in ("old", "both") else "NULL"
    new = "NEW.body" if view in ("new", "both") else "NULL"
    limits = {"records": roll_records, "ms": roll_ms, "kept": KEPT_SECONDS * 1000}
    wanted = {"is_new": _wanted("NEW", only), "is_old": _wanted("OLD", only)}
    cursor.execute(_SCHEMA.format(table=table, old=old, new=new, **limits, **wanted))
    stream = uuid.uuid4().hex[:16]
    cursor.execute(f"INSERT INTO {table}_stream (id, view) VALUES (?, ?)", (stream, view))
    return stream


def _wanted(row: str, only: CaptureFilter | None) -> str:
    """The condition of a trigger under which a row's change is recorded."""
    if only is None:
        return "TRUE"
    prefix = only.no_prefix.replace("'", "''")
    return f"({row}.i = {only.range:d} AND substr({row}.p, 1, {len(only.no_prefix)}) <> '{prefix}')"


_FORGET_SHARDS = """
DELETE FROM {table}_shards WHERE first < (SELECT max(first) FROM {table}_shards
    WHERE first < (SELECT min(n) FROM {table}_changes));
"""

_SCHEMA = (
    """
CREATE TABLE {table}_stream (id TEXT NOT NULL, view TEXT NOT NULL);
CREATE TABLE {table}_changes (n INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, p TEXT NOT NULL,
    i INTEGER NOT NULL, old BLOB, new BLOB);
CREATE TABLE {table}_shards (first INTEGER PRIMARY KEY, parent INTEGER, opened INTEGER NOT NULL);
INSERT INTO {table}_shards VALUES (1, NULL, tailrace_now());

CREATE TRIGGER {table}_inserted AFTER INSERT ON {table} WHEN {is_new} BEGIN
    INSERT INTO {table}_changes (at, kind, p, i, new) VALUES (tailrace_now(), 'INSERT', NEW.p, NEW.i, {new});
END;
CREATE TRIGGER {table}_modified AFTER UPDATE ON {table} WHEN OLD.body IS NOT NEW.body AND {is_new} BEGIN
    INSERT INTO {table}_changes (at, kind, p, i, old, new)
        VALUES (tailrace_now(), 'MODIFY', NEW.p, NEW.i, {old}, {new});
END;
CREATE TRIGGER {table}_removed AFTER DELETE ON {table} WHEN {is_old} BEGIN
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
