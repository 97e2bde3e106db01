"""Renames: tables that get another name, and perhaps their old name back.

What changes meanwhile is in the log under the other name.  So once the log has shown a table under another name, or
another table under a name, the rows that the sinks have under this name are no longer those of the table that has it.
Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.adaptors.postgres.catalog import Identity
from tailrace.adaptors.postgres.source.pgoutput import Relation


class Renames:
    """The names that the log has shown for tables.  `copied` are the names that were copied before the log was read."""

    def __init__(self, copied: Iterable[str]) -> None:
        self._copied = set(copied)
        self._said: dict[int, Relation] = {}
        self._names: dict[int, set[str]] = {}
        self._last: dict[int, str] = {}
        self._holders: dict[str, int] = {}
        """`_last` has the last name of each table, `_holders` the last table of each name."""

    def seen(self, relation: Relation) -> set[str]:
        """Take note of a table as the log describes it; return the names under which something else was copied."""
        oid, name = relation.oid, relation.namespace
        if self._said.get(oid) == relation:  # the log only repeats the description
            return set()
        before, holder = self._last.get(oid, name), self._holders.get(name, oid)
        came_back = before != name and name in self._names.get(oid, ())
        taken_over = (holder != oid or before != name) and name in self._copied
        self._said[oid], self._last[oid], self._holders[name] = relation, name, oid
        self._names.setdefault(oid, set()).add(name)
        return ({before} if before != name else set()) | ({name} if came_back or taken_over else set())

    def strayed(self, known: Sequence[Identity]) -> set[str]:
        """The tables of the catalog that have another name there than the last one in the log."""
        found = {one.oid: one.namespace for one in known if self._last.get(one.oid, one.namespace) != one.namespace}
        self._last |= found
        return set(found.values()) & self._copied
