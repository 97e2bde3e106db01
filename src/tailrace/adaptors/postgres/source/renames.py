"""Renames: tables that leave their name and come back to it.

What changed meanwhile is in the log under another name.  So what the sinks have under a name is no longer what the
table of that name has, once the log has shown the table under another one, or another table under that name.
Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.adaptors.postgres.catalog import Identity
from tailrace.adaptors.postgres.source.pgoutput import Relation


class Renames:
    """The names that the log has had for tables.  `copied` are those that were copied before it was read."""

    def __init__(self, copied: Iterable[str]) -> None:
        self._copied = set(copied)
        self._said: dict[int, Relation] = {}
        self._names: dict[int, set[str]] = {}
        self._last: dict[int, str] = {}
        self._holders: dict[str, int] = {}
        """The last name of each table, and the last table of each name."""

    def seen(self, relation: Relation) -> set[str]:
        """A table as the log describes it; gives the names under which something else was copied."""
        oid, name = relation.oid, relation.namespace
        if self._said.get(oid) == relation:  # it is only described once more
            return set()
        before, holder = self._last.get(oid, name), self._holders.get(name, oid)
        came_back = before != name and name in self._names.get(oid, ())
        taken_over = (holder != oid or before != name) and name in self._copied
        self._said[oid], self._last[oid], self._holders[name] = relation, name, oid
        self._names.setdefault(oid, set()).add(name)
        return ({before} if before != name else set()) | ({name} if came_back or taken_over else set())

    def strayed(self, known: Sequence[Identity]) -> set[str]:
        """Those tables of the catalog whose last name in the log is another one."""
        found = {one.oid: one.namespace for one in known if self._last.get(one.oid, one.namespace) != one.namespace}
        self._last |= found
        return set(found.values()) & self._copied
