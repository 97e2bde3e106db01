"""SqliteTable: a table in a SQLite database, on this machine's disk, shared by threads and processes.

    <name>       n INTEGER PRIMARY KEY, p TEXT, i INTEGER, body BLOB (see packing); unique (p, i)
    <name>_…     what change capture keeps (see capture)

Conditions are judged and changes made inside the transaction, by the functions every backend of ours shares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import apsw

from tailrace.errors import BadName, Closed, Conflict, Damaged
from tailrace.storage.capture import ROLL_RECORDS, ROLL_SECONDS, Capture, switch_on
from tailrace.storage.changes import View
from tailrace.storage.committer import Statement
from tailrace.storage.database import Database, fetch
from tailrace.storage.evaluation import changed, holds, same
from tailrace.storage.integrity import check_database, size_of
from tailrace.storage.limits import MAX_ITEM_BYTES, Rare, check_bytes, check_form, check_key, check_size, given, rare_in
from tailrace.storage.packing import COUNTED_PER_BYTE, pack, packed_size, unpack
from tailrace.storage.recent import Known, keep
from tailrace.storage.snapshot import Snapshot
from tailrace.storage.tables import LAST, PAGE_BYTES, Absent, Action, Check, Delete, Item, Key, Put, Slice, Update

_NEW = (Absent(),)
SURELY_FITS = MAX_ITEM_BYTES // COUNTED_PER_BYTE


class SqliteTable:
    """Keeps `Table`.  Several may share a database, each under its own name; the last one closed closes it."""

    inline_bytes = 65_536
    joins_inline = True
    handy_bytes = 8192

    def __init__(self, database: Database, name: str = "items") -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]{0,62}", name):
            raise BadName(f"a table's name is of a-z and 0-9, beginning with a letter, not {name!r}")
        self.database, self.name = database, name
        self._open = True
        self._recent = database.recent(name)
        self._select = f"SELECT n, body FROM {name} WHERE p = ? AND i = ?"
        self._insert = f"INSERT INTO {name} (p, i, body) VALUES (?, ?, ?)"
        self._insert_new = f"{self._insert} ON CONFLICT DO NOTHING RETURNING n"
        self._update = f"UPDATE {name} SET body = ? WHERE n = ?"
        self._delete = f"DELETE FROM {name} WHERE n = ?"
        self._range = f"SELECT i, body FROM {name} WHERE p = ? AND i BETWEEN ? AND ? ORDER BY i"
        self._all = f"SELECT p, i, body FROM {name} WHERE (p, i) > (?, ?) ORDER BY p, i"
        if not database.read(_has_table, name):
            database.write(_make_table, name)
        database.join()

    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        self._check_open()
        check_key(key)
        rows = self.database.read(fetch, self._select, (key.p, key.i))
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

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes behind a key, in order; none at the end."""
        self._check_open()
        return self.database.read(_some, self._all, after or ("", -1))

    def write(self, *actions: Action) -> tuple[Item | None, ...]:
        """Do all actions or none; answers the items as they now are (None: deleted or only checked)."""
        self._check_open()
        rare = check_form(actions)
        if packed_size([given(action) for action in actions]) > SURELY_FITS:
            check_bytes(actions)
        return self.database.change(self._judge, actions, rare)

    def capture(self, view: View, *, roll_records: int = ROLL_RECORDS, roll_seconds: float = ROLL_SECONDS) -> Capture:
        """Switch change capture on, for good; gives the changes since then.  See capture about rolling."""
        self._check_open()
        return switch_on(self.database, self.name, view, roll_records, roll_seconds)

    def data_version(self) -> int:
        """A number that is another one after any commit to the database, by whichever process."""
        self._check_open()
        return self.database.data_version()

    def check(self, told: Callable[[int], object]) -> tuple[list[Damaged], list[str]]:
        """What is damaged in the database, and what else there is to know about it; `told` gets the bytes read."""
        self._check_open()
        return check_database(self.database, told)

    def size(self) -> int:
        """The bytes of the database and its journal."""
        return size_of(self.database.path)

    @contextmanager
    def snapshot(self) -> Iterator[SqliteTable]:
        """The table as of now, to be read by one thread."""
        self._check_open()
        now = Snapshot(self.database)
        try:
            table = copy(self)
            table.database = now  # type: ignore[assignment]
            table._recent = {}  # what the writer knows is of later
            yield table
        finally:
            now.close()

    def close(self) -> None:
        """Give the database up; calls after this raise `Closed`."""
        if self._open:
            self._open = False
            self.database.leave()

    def _check_open(self) -> None:
        if not self._open:
            raise Closed(f"table {self.name!r} of {self.database.path} was closed")

    def _judge(
        self, cursor: apsw.Cursor, actions: tuple[Action, ...], rare: list[Rare]
    ) -> tuple[tuple[Item | None, ...], list[Statement]]:
        """The items as they will be, and what makes them so.  The first that must be new is put here, when all others
        were judged: the insert itself finds out."""
        answers: list[Item | None] = []
        statements: list[Statement] = []
        known: list[tuple[Key, Known | None]] = []
        added: tuple[int, Put] | None = None
        for index, action in enumerate(actions):
            if added is None and type(action) is Put and action.when == _NEW:
                added = index, action
                answers.append(None)
            else:
                answers.append(self._judge_one(cursor, index, action, rare[index], statements, known))
        if added is not None:
            answers[added[0]] = self._add(cursor, *added, rare[added[0]])
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
        known: list[tuple[Key, Known | None]],
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
        new = changed(old, action) or {}
        if before and type(action) is Update:
            rare = before.rare | rare if rare else before.rare
        body = before.body if before and _unchanged(before.item, new) else pack(new, rare)
        if len(body) > SURELY_FITS:
            check_size(key, new)
        if before:
            statements.append((self._update, (body, before.number)))
            known.append((key, Known(before.number, body, new, rare)))
        else:
            statements.append((self._insert, (key.p, key.i, body)))
        return new

    def _look(self, cursor: apsw.Cursor, key: Key) -> Known | None:
        for number, body in fetch(cursor, self._select, (key.p, key.i)):
            item = _unpacked(body, key.p, key.i)
            return Known(number, body, item, rare_in(item))
        return None

    def _add(self, cursor: apsw.Cursor, index: int, action: Put, rare: Rare) -> Item:
        key, new = action.key, changed(None, action) or {}
        body = pack(new, rare)
        if len(body) > SURELY_FITS:
            check_size(key, new)
        if not fetch(cursor, self._insert_new, (key.p, key.i, body)):
            there = self._look(cursor, key)
            raise _conflict(key, index, there and there.item)
        return new


def _conflict(key: Key, index: int, item: Item | None) -> Conflict:
    return Conflict(f"item {key.p!r}/{key.i} does not meet the condition", index=index, item=item)


def _unchanged(old: Item, new: Item) -> bool:
    """Then the same bytes are written again, which is no change to SQLite and to capture."""
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


def _page(cursor: apsw.Cursor, sql: str, bindings: tuple[str, int, int, int]) -> Slice:
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
    return Slice(items, last if len(items) == bindings[3] else None)


def _some(cursor: apsw.Cursor, sql: str, after: tuple[str, int]) -> list[Item]:
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
