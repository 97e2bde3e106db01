"""Followed tables: which tables are the pipeline's, what the position says of them, and what has become of them.

No log tells of DDL, so the catalog is looked at now and then, and whenever the log describes a table otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.settings import PostgresSource
from tailrace.adaptors.postgres.source import alterations, dropped_tables, publication
from tailrace.adaptors.postgres.source.pgoutput import Relation
from tailrace.adaptors.postgres.source.position import Point, mark
from tailrace.adaptors.postgres.source.recopy import shapes
from tailrace.adaptors.postgres.source.renames import Renames

if TYPE_CHECKING:
    from psycopg import Connection

NEXT = float("-inf")
"""When the catalog was last looked at, if it must be looked at next."""


class FollowedTables:
    """The tables of one follower.  `point` is the position, which changes with them."""

    def __init__(
        self, settings: PostgresSource, point: Point, namespaces: Sequence[str], planned: Set[str] = frozenset()
    ) -> None:
        self.point, self._settings, self._planned = point, settings, planned
        self.followed, self.copied = set(namespaces), set(namespaces)
        """The tables whose changes are read; those that are the pipeline's."""
        self.moved: set[str] = set()
        """Tables whose rows all moved while they were copied, which the log does not show."""
        self.endings = dropped_tables.Endings()
        self.altered = alterations.Alterations(leave=settings.altered == "leave")
        self._complete = point.server is not None
        """Whether the position has what is known of every table; one of an earlier version may not."""
        self._oids: dict[str, int] = {}
        self._relations: dict[int, Relation] = {}
        self._renames = Renames(namespaces)
        self.looked = NEXT

    def begin(self) -> Point:
        """The position to begin from: with other tables than before, some were copied since."""
        tables = mark(sorted(self.followed))
        copied = self.point.copied if tables == self.point.tables else None
        return replace(self.point, tables=tables, copied=copied)

    def know_copied(self, aside: Connection[Any], point: Point, copied: int) -> None:
        """Whatever was copied was copied before a place in the log."""
        self.moved |= alterations.moved(aside, point.files)
        files = {name: old for name, old in point.files.items() if name in self.moved}
        self.point = replace(point, copied=copied, files=files)

    def is_time_to_look(self) -> bool:
        """Whether the catalog is to be looked at now; the next look is due a while after."""
        if time.monotonic() - self.looked < self._settings.discover:
            return False
        self.looked = time.monotonic()
        return True

    def appeared(self, aside: Connection[Any]) -> list[str]:
        """Tables that are new."""
        return sorted(catalog.listing(aside) - self.followed)

    def note(self, aside: Connection[Any], appeared: Sequence[str], altered: Mapping[str, str]) -> None:
        """What tables are that are copied now."""
        point = self.point
        shaped = {**point.shapes, **shapes(aside, None, catalog.identities(aside, appeared))}
        forms = {**point.forms, **alterations.forms(aside, appeared), **altered}
        files = {**catalog.files(aside, [*appeared, *altered]), **point.files}
        self.point = replace(point, copied=None, shapes=shaped, forms=forms, files=files)

    def take_up(self, aside: Connection[Any], tables: Sequence[str]) -> Point:
        """Tables that appeared.  Those that were copied, and are published, are the pipeline's from now on, and so are
        those that were dropped after their copy was planned: another one of that name is another one.  One that was
        dropped before is as if it had never been.  Gives the position without the forms of tables that are not."""
        known = catalog.identities(aside, tables)
        lacking = publication.lacks(aside, self._settings.published, known)
        dropped = {*tables} - {one.namespace for one in known}
        self.copied |= {one.namespace for one in known if one not in lacking} | (dropped & self._planned)
        self.followed |= {*tables} - (dropped - self._planned)
        self._oids |= {one.namespace: one.oid for one in known}
        forms = {name: form for name, form in self.point.forms.items() if name in self.copied}
        return replace(self.point, forms=forms)

    def replaced(self, aside: Connection[Any]) -> list[str]:
        """Tables that are followed, and not published, or not those that were when we last looked: each is another one
        than was copied, under its name.  And those whose rows have other ids."""
        known = catalog.identities(aside, sorted(self.copied))
        others = {one.namespace for one in publication.lacks(aside, self._settings.published, known)}
        others |= {one.namespace for one in known if self._oids.get(one.namespace, one.oid) != one.oid}
        self._oids |= {one.namespace: one.oid for one in known}
        gone = self.copied - {one.namespace for one in known}
        self.endings.miss(gone, lambda: alterations.ahead(aside))
        self._estrange(gone | self._renames.strayed(known))
        if self._complete:
            others |= {one.namespace for one in known if not one.keyed and one.namespace not in self.point.shapes}
        rekeyed = self._look(aside, self.copied - self.point.shapes.keys())
        self._complete = True
        return sorted(others | rekeyed | self.moved)

    def _look(self, aside: Connection[Any], tables: Iterable[str]) -> set[str]:
        """Look whether tables were altered; which of them have another key."""
        same, rekeyed = self.altered.find(aside, tables, self.point.forms, complete=self._complete)
        self.point = replace(self.point, forms={**self.point.forms, **same})
        return rekeyed

    def _estrange(self, tables: set[str]) -> None:
        """Whatever table is found under one of these names, it is another one than was copied; the position says so."""
        forms = self.point.forms
        if mine := {name for name in tables & self.copied if forms.get(name) != alterations.ANOTHER}:
            shaped = {name: shape for name, shape in self.point.shapes.items() if name not in mine}
            forms = {**forms, **dict.fromkeys(mine, alterations.ANOTHER)}
            self.altered.forget(mine)  # a copy that waits would leave the rows of the other table
            self.point, self.looked = replace(self.point, forms=forms, shapes=shaped), NEXT

    def described(self, aside: Connection[Any], relation: Relation) -> bool:
        """The log describes a table; whether it is followed, and has columns."""
        self._estrange(self._renames.seen(relation))
        if self._oids.get(relation.namespace, relation.oid) != relation.oid:
            self.looked = NEXT
            if relation.namespace not in self.point.cuts:  # else what it had is skipped
                self._estrange({relation.namespace})
        if relation.namespace not in self.followed or not relation.columns:
            self.looked = NEXT
            return False
        if (known := self._relations.get(relation.oid)) != relation:
            self.looked = self.looked if known is None else NEXT
            self._relations[relation.oid] = relation
            self._compare(aside, relation)
        return True

    def has_partitions(self, aside: Connection[Any], relation: Relation) -> bool:
        """Whether a table has partitions that may come and go with their rows.  If so it is looked at: one that is
        there now, and gone by the next look, would not be missed otherwise."""
        if relation.namespace not in self.copied or self._settings.altered == "leave":
            return False
        if not self.altered.has_partitions(relation.namespace):
            return False
        if self._look(aside, [relation.namespace]):
            self.looked = NEXT
        return True

    def _compare(self, aside: Connection[Any], relation: Relation) -> None:
        """The log has a table with other columns than when it was last looked at: what the position says of it must be
        right before it passes over rows with these columns."""
        if relation.namespace not in self.copied or not self.altered.is_new(relation):
            return
        if self._look(aside, [relation.namespace]):
            self.looked = NEXT
        if self.altered.is_past(relation):
            forms = {name: form for name, form in self.point.forms.items() if name != relation.namespace}
            self.point, self.looked = replace(self.point, forms=forms), NEXT
