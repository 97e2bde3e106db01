"""Alterations: what the binlog's statements do to the followed tables, in log order.

Only `take_appeared` talks to the server: it asks whether a new table still exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.adaptors.contract import DROP, RENAME, TRUNCATE, Command
from tailrace.adaptors.mysql import catalog, names
from tailrace.adaptors.mysql.source.position import Point
from tailrace.adaptors.mysql.source.statements import Statement


class Alterations:
    """Tracks the followed tables through the binlog's statements, and collects the tables that must be copied again."""

    def __init__(self, followed: set[str], point: Point, database: str, *, leave: bool) -> None:
        self.followed, self._database, self._leave = followed, database, leave
        self.keys: dict[str, tuple[str, ...]] = dict(point.keys)
        self.dropped: set[str] = set(point.dropped)
        self.prepared: dict[str, tuple[str, ...]] = dict(point.prepared)
        self.lost: dict[str, tuple[str, ...]] = dict(point.lost)
        self._appeared: dict[str, None] = dict.fromkeys(point.appeared)
        self._altered: set[str] = set(point.altered)
        self._unsettled: set[str] = set()
        self._ended: dict[str, None] = {}

    @property
    def pressing(self) -> bool:
        """Whether the follower must copy or report tables before it reads on."""
        return bool(self._appeared or self._altered or self._ended)

    def take(self, statement: Statement) -> list[tuple[str, Command]]:
        """Take in a statement of the binlog; return the commands that it means for followed tables."""
        does = statement.does
        if does == "truncate":
            return self._truncate(statement.tables)
        if does == "create":
            return self._create(statement)
        if does == "drop":
            return self._drop(statement.tables)
        if does == "drop database":
            gone = statement.tables[0]
            return self._drop(name for name in self.followed if names.parts(name, self._database)[0] == gone)
        if does in ("rename", "alter"):
            if does == "alter":
                self._alter(statement)
            for name in statement.made:
                self._arrive(name)
            return [*self._rename(statement), *self._drop(statement.gone)]
        self._take_rows(statement)
        return []

    def _take_rows(self, statement: Statement) -> None:
        """Take in a statement that changed rows without logging them, or that ended an XA transaction."""
        does = statement.does
        if does == "write":
            words = set(statement.tables)
            self._unsettled |= {name for name in self.followed if names.parts(name, self._database)[1] in words}
        elif does == "lost":
            self._unsettled |= self.followed
        elif does == "commit":
            self._unsettled |= set(self.prepared.pop(statement.xid, tuple(self.followed))) & self.followed
        elif does == "rollback":
            self.prepared.pop(statement.xid, None)

    def _truncate(self, tables: Iterable[str]) -> list[tuple[str, Command]]:
        emptied = [name for name in tables if name in self.followed]
        for name in emptied:
            self.lost.pop(name, None)
        return [(name, Command(TRUNCATE)) for name in emptied]

    def _create(self, statement: Statement) -> list[tuple[str, Command]]:
        (name,) = statement.tables
        if name not in self.followed:
            self._appeared[name] = None
            return []
        if statement.optional and name not in self.dropped:
            return []
        self.dropped.discard(name)
        self._ended.pop(name, None)
        self._unsettled.discard(name)
        return self._truncate([name])

    def _drop(self, tables: Iterable[str]) -> list[tuple[str, Command]]:
        gone = list(tables)
        for name in gone:
            self._appeared.pop(name, None)
            if name in self.followed:
                self._altered.discard(name)
                self.dropped.add(name)
                self._ended[name] = None
        return [(name, Command(DROP)) for name in gone if name in self.followed]

    def _rename(self, statement: Statement) -> list[tuple[str, Command]]:
        done = []
        for old, new in statement.renamed:
            done += [(name, Command(RENAME, new)) for name, _ in self._drop([old])]
            self._arrive(new)
        return done

    def _arrive(self, name: str) -> None:
        """Take in that a table now has this name, with rows that the binlog does not have under it."""
        if name in self.followed:
            self.dropped.discard(name)
            self._ended.pop(name, None)
            self._unsettled.add(name)
        else:
            self._appeared[name] = None

    def _alter(self, statement: Statement) -> None:
        name, *exchanged = statement.tables
        self._unsettled |= set(exchanged) & self.followed
        if name not in self.followed:
            return
        keys = self.keys.get(name, ())
        other_ids = statement.effect == "rows" or bool(set(statement.columns) & {key.lower() for key in keys})
        if not keys:
            other_ids |= statement.effect != "none" or statement.reshaped
        lost = {*self.lost.get(name, ()), *statement.columns}
        if lost:
            self.lost[name] = tuple(sorted(lost))
        if other_ids:
            self._unsettled.add(name)
        elif (statement.effect == "values" or lost & set(statement.added)) and not self._leave:
            self._altered.add(name)

    # -- what must be done
    @property
    def waiting(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The new tables, and the tables that must be copied again over the rows that sinks have."""
        return tuple(self._appeared), tuple(sorted(self._altered))

    def alter(self, tables: Iterable[str]) -> None:
        """Note that the followed ones among these tables must be copied again, over the rows that sinks have."""
        self._altered |= set(tables) & self.followed

    def take_unsettled(self) -> set[str]:
        """Return and forget the tables that must be emptied and copied again."""
        found, self._unsettled = self._unsettled, set()
        return found

    def take_altered(self) -> set[str]:
        """Return and forget the tables that must be copied again, over the rows that sinks have."""
        found, self._altered = self._altered, set()
        return found & self.followed

    def take_appeared(self, connection: Any) -> list[str]:
        """Return and forget the new tables; of these only such as still exist."""
        if not self._appeared:
            return []
        found, self._appeared = list(self._appeared), {}
        there = catalog.there(connection, found, self._database)
        return [name for name in found if name in there]

    def take_ended(self) -> list[str]:
        """Return and forget the tables that were dropped or renamed."""
        found, self._ended = list(self._ended), {}
        return found

    def settled(self, tables: Sequence[str]) -> None:
        """Note that these tables were emptied and copied: no copy is due, and no sink has values of dropped columns."""
        self._altered -= set(tables)
        for name in tables:
            self.lost.pop(name, None)
