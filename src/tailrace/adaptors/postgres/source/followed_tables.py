"""Followed tables: which tables are the pipeline's, what the position says about them, and what has become of them.

The log does not report DDL.  So the follower looks into the catalog from time to time, and whenever the log describes a
table differently.
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
"""The value of `looked` that makes the next look into the catalog due at once."""


class FollowedTables:
    """The tables of one follower.  `point` is the position, which changes with the tables."""

    def __init__(
        self, settings: PostgresSource, point: Point, namespaces: Sequence[str], planned: Set[str] = frozenset()
    ) -> None:
        self.point, self._settings, self._planned = point, settings, planned
        self.followed, self.copied = set(namespaces), set(namespaces)
        """`followed` has the tables whose changes are read, `copied` those that are the pipeline's."""
        self.moved: set[str] = set()
        """Tables whose rows all moved while they were copied, which the log does not show."""
        self.endings = dropped_tables.Endings()
        self.altered = alterations.Alterations(leave=settings.altered == "leave")
        self._complete = point.server is not None
        """Whether the position has what is known of every table; a position of an earlier version may not."""
        self._oids: dict[str, int] = {}
        self._relations: dict[int, Relation] = {}
        self._renames = Renames(namespaces)
        self.looked = NEXT

    def begin(self) -> Point:
        """Return the position to begin from.  If other tables are followed than before, some were copied since, and the
        end of their copies is not known."""
        tables = mark(sorted(self.followed))
        copied = self.point.copied if tables == self.point.tables else None
        return replace(self.point, tables=tables, copied=copied)

    def know_copied(self, aside: Connection[Any], point: Point, copied: int) -> None:
        """Set the place in the log that is after all copies, and find the tables whose rows moved during the copy."""
        self.moved |= alterations.moved(aside, point.files)
        files = {name: old for name, old in point.files.items() if name in self.moved}
        self.point = replace(point, copied=copied, files=files)

    def is_time_to_look(self) -> bool:
        """Whether a look into the catalog is due; if so, the time to the next one starts."""
        if time.monotonic() - self.looked < self._settings.discover:
            return False
        self.looked = time.monotonic()
        return True

    def appeared(self, aside: Connection[Any]) -> list[str]:
        """The namespaces of new tables."""
        return sorted(catalog.listing(aside) - self.followed)

    def note(self, aside: Connection[Any], appeared: Sequence[str], altered: Mapping[str, str]) -> None:
        """Put into the position what tables are that are copied now: their shapes, forms and files."""
        point = self.point
        shaped = {**point.shapes, **shapes(aside, None, catalog.identities(aside, appeared))}
        forms = {**point.forms, **alterations.forms(aside, appeared), **altered}
        files = {**catalog.files(aside, [*appeared, *altered]), **point.files}
        self.point = replace(point, copied=None, shapes=shaped, forms=forms, files=files)

    def take_up(self, aside: Connection[Any], tables: Sequence[str]) -> Point:
        """Take up tables that appeared; return the position without the forms of tables that are not the pipeline's.

        A table becomes the pipeline's if it was copied and is published.  So does one that was dropped after its copy
        was planned: a table that gets its name later is then known to be another one.  A table that was dropped before
        is ignored."""
        known = catalog.identities(aside, tables)
        lacking = publication.lacks(aside, self._settings.published, known)
        dropped = {*tables} - {one.namespace for one in known}
        self.copied |= {one.namespace for one in known if one not in lacking} | (dropped & self._planned)
        self.followed |= {*tables} - (dropped - self._planned)
        self._oids |= {one.namespace: one.oid for one in known}
        forms = {name: form for name, form in self.point.forms.items() if name in self.copied}
        return replace(self.point, forms=forms)

    def replaced(self, aside: Connection[Any]) -> list[str]:
        """The tables that must be copied again after they are emptied in the sinks.

        They are followed and not published, or are not the tables that they were at the last look: each is another
        table under the name of one that was copied.  Or their rows have other ids, were lost with a partition, or moved
        during the copy."""
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
        """Look whether tables were altered; return those that have another key or have lost rows."""
        same, rekeyed = self.altered.find(aside, tables, self.point.forms, complete=self._complete)
        self.point = replace(self.point, forms={**self.point.forms, **same})
        return rekeyed

    def _estrange(self, tables: set[str]) -> None:
        """Put into the position that whatever table has one of these names is another table than the one that was
        copied."""
        forms = self.point.forms
        if mine := {name for name in tables & self.copied if forms.get(name) != alterations.ANOTHER}:
            shaped = {name: shape for name, shape in self.point.shapes.items() if name not in mine}
            forms = {**forms, **dict.fromkeys(mine, alterations.ANOTHER)}
            self.altered.forget(mine)  # a waiting copy over the rows would leave rows of the other table
            self.point, self.looked = replace(self.point, forms=forms, shapes=shaped), NEXT

    def described(self, aside: Connection[Any], relation: Relation) -> bool:
        """Take note of a table as the log describes it; return whether it is followed and has columns."""
        self._estrange(self._renames.seen(relation))
        if self._oids.get(relation.namespace, relation.oid) != relation.oid:
            self.looked = NEXT
            if relation.namespace not in self.point.cuts:  # with a cut, changes of the earlier table are skipped
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
        """Whether a table has partitions that may come and go with their rows.  If so, it is looked at: a partition
        that is there now and gone by the next look would not be missed otherwise."""
        if relation.namespace not in self.copied or self._settings.altered == "leave":
            return False
        if not self.altered.has_partitions(relation.namespace):
            return False
        if self._look(aside, [relation.namespace]):
            self.looked = NEXT
        return True

    def _compare(self, aside: Connection[Any], relation: Relation) -> None:
        """Look at a table if the log has other columns of it than the last look, because the form in the position must
        be right before the position passes over rows with these columns."""
        if relation.namespace not in self.copied or not self.altered.is_new(relation):
            return
        if self._look(aside, [relation.namespace]):
            self.looked = NEXT
        if self.altered.is_past(relation):
            forms = {name: form for name, form in self.point.forms.items() if name != relation.namespace}
            self.point, self.looked = replace(self.point, forms=forms), NEXT
