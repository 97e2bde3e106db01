"""SqliteTable: a table in a SQLite database, on this machine's disk, shared by threads and processes.

    <name>       n INTEGER PRIMARY KEY, p TEXT, i INTEGER, body BLOB (see packing); unique (p, i)
    <name>_…     what change capture keeps (see capture)

Conditions are judged and changes made inside the transaction, by the functions that all embedded backends share.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import apsw

from tailrace.errors import BadName, Closed, Conflict, Damaged, TooLarge
from tailrace.storage.changes import View
from tailrace.storage.evaluation import changed, holds, same
from tailrace.storage.keys import ALL, HOME, Bounds, KeySchema, sortable
from tailrace.storage.limits import (
    MAX_ACTIONS,
    MAX_ITEM_BYTES,
    SURELY_FIT_TOGETHER,
    Rare,
    check_bytes,
    check_form,
    check_size,
    check_together,
    given,
    rare_in,
)
from tailrace.storage.sqlite import watermark
from tailrace.storage.sqlite.capture import ROLL_RECORDS, ROLL_SECONDS, Capture, CaptureFilter, switch_on
from tailrace.storage.sqlite.codec import COUNTED_PER_BYTE, pack, packed_size, unpack
from tailrace.storage.sqlite.committer import Statement
from tailrace.storage.sqlite.connection import fetch
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.integrity import check_database, size_of
from tailrace.storage.sqlite.recent_items import RecentItem, keep
from tailrace.storage.sqlite.snapshot import Snapshot
from tailrace.storage.tables import LAST, PAGE_BYTES, Absent, Action, Check, Delete, Item, Key, Put, Slice, Update

_NEW = (Absent(),)
_ANY = Key("any")
SURELY_FITS = MAX_ITEM_BYTES // COUNTED_PER_BYTE


class SqliteTable:
    """Keeps `Table`.  Several may share a database, each under its own name; the last one closed closes it."""

    inline_bytes = 65_536
    joins_inline = True
    handy_bytes = 8192

    def __init__(self, database: SqliteDatabase, name: str = "items", schema: KeySchema = HOME) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,62}", name):
            raise BadName(f"a table's name is of a-z and 0-9, beginning with a letter, not {name!r}")
        self.database = database
        self._open = True
        self._call(name, schema)
        self._recent = database.recent(name)
        if not database.read(_has_table, name):
            database.write(_make_table, name)
        database.join()

    def _call(self, name: str, schema: KeySchema) -> None:
        self.name, self.schema = name, schema
        self._select = f"SELECT n, body FROM {name} WHERE p = ? AND i = ?"
        self._insert = f"INSERT INTO {name} (p, i, body) VALUES (?, ?, ?)"
        self._insert_new = f"{self._insert} ON CONFLICT DO NOTHING RETURNING n"
        self._update = f"UPDATE {name} SET body = ? WHERE n = ?"
        self._delete = f"DELETE FROM {name} WHERE n = ?"
        self._range = f"SELECT i, body FROM {name} WHERE p = ? AND i BETWEEN ? AND ? ORDER BY i"
        self._all = f"SELECT p, i, body FROM {name} WHERE (p, i) > (?, ?) ORDER BY p, i"

    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        self._check_open()
        self.schema.check(key)
        rows = self.database.read(fetch, self._select, self.schema.columns(key))
        return _unpacked(rows[0][1], key.p, key.i) if rows else None

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash with low <= i <= high, in order; at most `limit` and at most 1 MB of them."""
        self._check_open()
        low, high = max(low, 0), min(high, LAST)
        if low > high or limit == 0:
            return Slice([], None)
        sql = f"{self._range} {'DESC' if descending else 'ASC'} LIMIT ?"
        return self.database.read(_page, sql, (p, low, high, -1 if limit is None else limit))

    def find(
        self, hash: Any, bounds: Bounds = ALL, *, after: Any = None, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash whose range keys are within bounds, in order, after the last one of the page before."""
        self._check_open()
        bounds.check(self.schema)
        wanted = bounds.comparisons()
        if after is not None:
            wanted.append(("<" if descending else ">", sortable(after)))
        where = "".join(f" AND i {operator} ?" for operator, _ in wanted)
        sql = f"SELECT i, body FROM {self.name} WHERE p = ?{where} ORDER BY i {'DESC' if descending else 'ASC'} LIMIT ?"
        bindings = (sortable(hash), *(value for _, value in wanted), -1 if limit is None else limit)
        items, more = self.database.read(_page, sql, bindings)
        return Slice(items, None if more is None else self.schema.key_of(items[-1]).i)

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes after a key, in order; none at the end."""
        self._check_open()
        return self.database.read(_some, self._all, self.schema.columns(after) if after else ("", -1))

    def write(self, *actions: Action) -> tuple[Item | None, ...]:
        """Do all actions or none; returns the items as they are now (None: deleted or only checked)."""
        self._check_open()
        rare = self._rare(actions)
        if packed_size([given(action) for action in actions]) > SURELY_FITS:
            check_bytes(actions, self.schema)
        return self.database.change(self._judge, actions, rare)

    def sibling(self, name: str, schema: KeySchema) -> SqliteTable:
        """Another table of the same database, created if it is missing; it can be used while this one is open.  Its
        name may have any characters.

        In a snapshot, a table that did not exist at that moment has no items."""
        table = copy(self)
        table._call(f"t{hashlib.blake2b(name.encode(), digest_size=20).hexdigest()}", schema)
        table._recent = {} if isinstance(self.database, Snapshot) else self.database.recent(table.name)
        if not self.database.read(_has_table, table.name):
            if isinstance(self.database, Snapshot):
                table._all = "SELECT 0, 0, x'' WHERE (?, ?) IS NULL"
            else:
                self.database.write(_make_table, table.name)
        return table

    def write_with(self, *parts: tuple[SqliteTable, Action]) -> None:
        """Do all actions, on this and other tables of the same database, or none."""
        self._check_open()
        if not 1 <= len(parts) <= MAX_ACTIONS:
            raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(parts)}")
        by_table: dict[str, tuple[SqliteTable, list[int]]] = {}
        for index, (table, _) in enumerate(parts):
            by_table.setdefault(table.name, (table, []))[1].append(index)
        work = []
        for table, indices in by_table.values():
            actions = tuple(parts[index][1] for index in indices)
            work.append((table, actions, table._rare(actions), indices))
            check_bytes(actions, table.schema)
        self.database.write(_write_all, work)

    def capture(
        self,
        view: View,
        *,
        only: CaptureFilter | None = None,
        roll_records: int = ROLL_RECORDS,
        roll_seconds: float = ROLL_SECONDS,
    ) -> Capture:
        """Switch change capture on, for good; returns the changes from then on.  See capture about rolling."""
        self._check_open()
        return switch_on(self.database, self.name, view, roll_records, roll_seconds, self.schema, only)

    @property
    def commit_files(self) -> tuple[Path, Path]:
        """The files that every commit of any process writes to: the journal before the commit shows, the watermark
        right after."""
        path = self.database.path
        return path.with_name(f"{path.name}-wal"), watermark.path_of(path)

    def data_version(self) -> int:
        """A number that changes with every commit to the database, by any process."""
        self._check_open()
        return self.database.data_version()

    def check(self, told: Callable[[int], object]) -> tuple[list[Damaged], list[str]]:
        """The damage in the database, and other remarks about it; `told` is called with the bytes read."""
        self._check_open()
        return check_database(self.database, told)

    def size(self) -> int:
        """The bytes of the database and its journal."""
        return size_of(self.database.path)

    @contextmanager
    def snapshot(self) -> Iterator[SqliteTable]:
        """The table as of now, for one thread to read."""
        self._check_open()
        now = Snapshot(self.database)
        try:
            table = copy(self)
            table.database = now  # type: ignore[assignment]
            table._recent = {}  # the writer's recent items are of a later state
            yield table
        finally:
            now.close()

    def close(self) -> None:
        """Leave the database; calls after this raise `Closed`."""
        if self._open:
            self._open = False
            self.database.leave()

    def _rare(self, actions: tuple[Action, ...]) -> list[Rare]:
        """Refuse what no table may hold; returns the rare attributes of each action, a model's keys included."""
        rare = check_form(actions, self.schema)
        return rare if self.schema == HOME else [one | self.schema.attributes(_ANY).keys() for one in rare]

    def _check_open(self) -> None:
        if not self._open:
            raise Closed(f"table {self.name!r} of {self.database.path} was closed")

    def _judge(
        self, cursor: apsw.Cursor, actions: tuple[Action, ...], rare: list[Rare]
    ) -> tuple[tuple[Item | None, ...], list[Statement]]:
        """The items as they will be, and the statements that make them so.  The first item that must be new is inserted
        here, after all others were judged: the insert itself finds out whether it is new."""
        answers: list[Item | None] = []
        statements: list[Statement] = []
        known: list[tuple[Key, RecentItem | None]] = []
        added: tuple[int, Put] | None = None
        for index, action in enumerate(actions):
            if added is None and type(action) is Put and action.when == _NEW:
                added = index, action
                answers.append(None)
            else:
                answers.append(self._judge_one(cursor, index, action, rare[index], statements, known))
        if added is not None:
            answers[added[0]] = self._add(cursor, *added, rare[added[0]])
        if len(actions) > SURELY_FIT_TOGETHER:
            check_together(new or self._old(cursor, action.key) for new, action in zip(answers, actions, strict=True))
        for key, one in known:
            keep(self._recent, key, one)
        return tuple(answers), statements

    def _judge_one(
        self,
        cursor: apsw.Cursor,
        index: int,
        action: Action,
        rare: Rare,
        statements: list[Statement],
        known: list[tuple[Key, RecentItem | None]],
    ) -> Item | None:
        key = action.key
        before = self._recent.get(key) or self._look(cursor, key)
        old = before and before.item
        if not holds(old, action.when):
            raise _conflict(key, index, old)
        if isinstance(action, Check):
            return None
        if isinstance(action, Delete):
            if before:
                statements.append((self._delete, (before.number,)))
                known.append((key, None))
            return None
        new = changed(old, action, self.schema) or {}
        if before and type(action) is Update:
            rare = before.rare | rare if rare else before.rare
        body = before.body if before and _unchanged(before.item, new) else pack(new, rare)
        if len(body) > SURELY_FITS:
            check_size(key, new)
        if before:
            statements.append((self._update, (body, before.number)))
            known.append((key, RecentItem(before.number, body, new, rare)))
        else:
            statements.append((self._insert, (*self.schema.columns(key), body)))
        return new

    def _old(self, cursor: apsw.Cursor, key: Key) -> Item | None:
        known = self._recent.get(key) or self._look(cursor, key)
        return known and known.item

    def _look(self, cursor: apsw.Cursor, key: Key) -> RecentItem | None:
        for number, body in fetch(cursor, self._select, self.schema.columns(key)):
            item = _unpacked(body, key.p, key.i)
            return RecentItem(number, body, item, rare_in(item))
        return None

    def _add(self, cursor: apsw.Cursor, index: int, action: Put, rare: Rare) -> Item:
        key, new = action.key, changed(None, action, self.schema) or {}
        body = pack(new, rare)
        if len(body) > SURELY_FITS:
            check_size(key, new)
        if not fetch(cursor, self._insert_new, (*self.schema.columns(key), body)):
            there = self._look(cursor, key)
            raise _conflict(key, index, there and there.item)
        return new


def _write_all(cursor: apsw.Cursor, work: list[tuple[SqliteTable, tuple[Action, ...], list[Rare], list[int]]]) -> None:
    for table, actions, rare, indices in work:
        try:
            _, statements = table._judge(cursor, actions, rare)
        except Conflict as conflict:
            conflict.index = indices[conflict.index]
            raise
        for sql, bindings in statements:
            cursor.execute(sql, bindings)


def _conflict(key: Key, index: int, item: Item | None) -> Conflict:
    return Conflict(f"item {key.p!r}/{key.i} does not meet the condition", index=index, item=item)


def _unchanged(old: Item, new: Item) -> bool:
    """The statement for an item that stays as it is: it writes the same bytes again, which neither SQLite nor capture
    counts as a change."""
    return old == new and same(old, new)


def _unpacked(body: bytes | None, p: str, i: int) -> Item:
    try:
        if body is None:
            raise ValueError("its bytes are gone")
        return unpack(body)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise Damaged(
            f"item {p!r}/{i} is not what was written ({error}); restore it from a backup", where=p, position=i
        ) from error


def _page(cursor: apsw.Cursor, sql: str, bindings: tuple[Any, ...]) -> Slice:
    items: list[Item] = []
    size, last = 0, None
    for row in cursor.execute(sql, bindings):
        i: Any = row[0]
        body: Any = row[1]
        size += len(body or b"")
        if size > PAGE_BYTES and items:
            return Slice(items, last)
        items.append(_unpacked(body, bindings[0], i))
        last = i
    return Slice(items, last if len(items) == bindings[-1] else None)


def _some(cursor: apsw.Cursor, sql: str, after: tuple[Any, Any]) -> list[Item]:
    items: list[Item] = []
    size = 0
    for p, i, body in cursor.execute(sql, after):
        size += len(body or b"")
        if size > PAGE_BYTES and items:
            break
        items.append(_unpacked(body, p, i))
    return items


def _has_table(cursor: apsw.Cursor, name: str) -> bool:
    return bool(fetch(cursor, "SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)))


def _make_table(cursor: apsw.Cursor, name: str) -> None:
    cursor.execute(
        f"""CREATE TABLE IF NOT EXISTS {name}
            (n INTEGER PRIMARY KEY, p TEXT NOT NULL, i INTEGER NOT NULL, body BLOB NOT NULL);
            CREATE UNIQUE INDEX IF NOT EXISTS {name}_key ON {name} (p, i)"""
    )
