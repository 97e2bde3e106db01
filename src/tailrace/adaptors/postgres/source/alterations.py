"""Alterations: what ALTER TABLE does to rows that are there, which no log says.

Every row has a new column's default, or a column has another name, or USING has made other values of another type; and
a new column without values may have the name of one that was dropped, whose values the sinks still have.  So
the catalog is looked at now and then.  A table with a key that is altered so is copied again, over what is there, once
all is read that was committed when it was noticed; one whose key is another is emptied first, as its rows have other
ids, and so is another table under its name.  (For tables without a key see recopy.)

A partition that is attached brings its rows, one that is detached or dropped takes them along, and no log says so.  A
partition that was made as one has had all its rows from the log.  One that came and went between two looks leaves no
trace in the catalog.  But before its first change the log describes its table once more.  Then the table is looked at,
and of what was committed before that look, changes of rows that are not there any more become deletes.

A position has the form of each table as of the last look at it.  That must be what the rows before the position were
read with: a column that comes and is renamed between two looks leaves no trace in the catalog but its last name, and a
kill makes the time between two looks long.  So a table is looked at as soon as the log has columns that were not seen
yet, before a position passes over them; and if the catalog no longer has them, the form is forgotten.  A table without
a form is copied again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.source.pgoutput import Relation
from tailrace.adaptors.postgres.source.position import lsn_number, mark

if TYPE_CHECKING:
    from psycopg import Connection

# ATTACH writes all of a table's columns again; what is made as a partition is made in one command with its columns.
_PARTS = """
    SELECT CASE WHEN c.relkind = 'p' THEN COALESCE(jsonb_object_agg(part.relid::oid::text, EXISTS (
        SELECT FROM pg_class p JOIN pg_type t ON t.oid = p.reltype JOIN pg_attribute own ON own.attrelid = p.oid
        WHERE p.oid = part.relid AND own.attnum > 0 AND own.xmin::text = t.xmin::text AND own.cmin::text = t.cmin::text
    )), '{}') END
    FROM pg_partition_tree(c.oid) part WHERE c.relkind = 'p' AND part.level > 0
"""
_LOOK = f"""
    SELECT asked.n, keys.mark, array_agg(a.attnum),
           array_agg(concat_ws(' ', a.attname, a.atttypid, a.atttypmod)),
           array_agg(a.atthasmissing OR a.atthasdef OR a.attnotnull OR EXISTS (
               SELECT FROM pg_attribute d WHERE d.attrelid = a.attrelid AND d.attisdropped AND d.attnum < a.attnum)),
           parts.found
    {catalog.ASKED}
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN LATERAL (
        SELECT left(md5(c.oid || ' ' || string_agg(k.attname::text, ' ' ORDER BY k.attnum)), 8) FROM pg_index i
        JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND {catalog.IDENTIFIES}
    ) AS keys(mark)
    CROSS JOIN LATERAL ({_PARTS}) AS parts(found)
    WHERE keys.mark IS NOT NULL
        AND (a.attgenerated = '' OR a.attgenerated = 's' AND current_setting('server_version_num')::int >= 180000)
    GROUP BY asked.n, keys.mark, parts.found
"""

ANOTHER = "another.0."
"""The form of a table that is none: whatever has its name now is another table."""
Altered = Literal["no", "rows", "parts", "keys"]
"""What has happened to rows: nothing; others came, or they have other values; some have gone; they have other ids."""


@dataclass(frozen=True, slots=True)
class Look:
    """A table as the catalog has it: a mark of it and its key, its columns by number, and which of them, were they new,
    may have a value in every row.  A new column has a greater number than any before it.  `parts`: its partitions, and
    whether they were made as such; a new one has a greater oid."""

    key: str
    columns: Mapping[int, str]
    filled: frozenset[int]
    parts: Mapping[int, bool] | None = None

    @property
    def form(self) -> str:
        """What a position keeps of it."""
        form = self._form(max(self.columns))
        return form if self.parts is None else f"{form}.{self._parts(max(self.parts, default=0))}"

    @property
    def unsettled(self) -> str:
        """What a position keeps of it until it is copied again: its partitions, to miss those that go meanwhile."""
        key, last, _, parts = self.form.split(".")
        return f"{key}.{last}.unsettled.{parts}"

    def _form(self, last: int) -> str:
        some = (f"{number} {column}" for number, column in sorted(self.columns.items()) if number <= last)
        return f"{self.key}.{last}.{mark(some)}"

    def _parts(self, newest: int) -> str:
        return f"{newest}-{mark(str(oid) for oid in sorted(self.parts or ()) if oid <= newest)}"

    def has(self, relation: Relation) -> bool:
        """Whether it has all columns of a table as the log describes it."""
        return _texts(relation) <= set(self.columns.values())

    def since(self, form: str, then: Look | None) -> Altered:
        """What has happened to its rows since it had a form; `then`: what it was, if that is known."""
        key, last, columns, *parts = form.split(".")
        if key != self.key:
            return "keys"
        if parts and (came := self._came(parts[0], then)) != "no":
            return came
        return self._columns_since(f"{key}.{last}.{columns}", then)

    def _came(self, parts: str, then: Look | None) -> Altered:
        """What has happened to its partitions."""
        newest = int(parts.partition("-")[0])
        now = self.parts or {}
        if self._parts(newest) != parts:
            gone = then is None or then.parts is None or then.parts.keys() - now.keys()
            return "parts" if gone else "rows"
        return "no" if all(made for oid, made in now.items() if oid > newest) else "rows"

    def _columns_since(self, form: str, then: Look | None) -> Altered:
        _, last, _ = form.split(".")
        known = then.columns if then is not None and then.form.startswith(form) else None
        old = {number: column for number, column in self.columns.items() if number <= int(last)}
        # One that was dropped leaves the others as they were, but the form alone does not show that.
        same = self._form(int(last)) == form if known is None else old.items() <= known.items()
        return "no" if same and not self.filled & (self.columns.keys() - old.keys()) else "rows"


def _texts(relation: Relation) -> set[str]:
    """Columns as a look has them."""
    return {f"{column.name} {column.type} {column.modifier}" for column in relation.columns}


def look(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, Look]:
    """Those of some tables that have a key."""
    return {
        name: Look(
            key,
            dict(zip(numbers, columns, strict=True)),
            frozenset(number for number, full in zip(numbers, filled, strict=True) if full),
            None if parts is None else {int(oid): made for oid, made in parts.items()},
        )
        for name, key, numbers, columns, filled, parts in catalog.each(connection, _LOOK, namespaces)
    }


def forms(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, str]:
    """What positions keep of tables."""
    return {name: one.form for name, one in look(connection, namespaces).items()}


def moved(connection: Connection[Any], before: Mapping[str, Mapping[str, int]]) -> set[str]:
    """Tables whose rows are in other files than they were: all of them may have moved."""
    now = catalog.files(connection, list(before))
    return {name for name, old in before.items() if any(old.get(n, f) != f for n, f in now.get(name, {}).items())}


class Alterations:
    """Tables whose rows were found altered, until they are copied again; with `leave` they are not."""

    def __init__(self, *, leave: bool) -> None:
        self._leave = leave
        self._waiting: dict[str, tuple[int, str]] = {}
        self._last: dict[str, Look] = {}
        self._lost: set[str] = set()
        """Tables that have lost rows with a partition, until they are copied: only the look that finds it shows it."""
        self._dropped: dict[str, set[str]] = {}
        """Columns of which is known that they were dropped, and not renamed."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(
        self, connection: Connection[Any], namespaces: Iterable[str], known: Mapping[str, str], *, complete: bool = True
    ) -> tuple[dict[str, str], set[str]]:
        """Look at tables: the forms of those that are still what `known` says, as far as rows go, and which have
        another key, or lost some rows.  `complete`: of a table whose form is not known, its rows are not
        known either."""
        found = look(connection, sorted(namespaces))
        self._see_waiting(connection, {name: found[name] for name in found.keys() & self._waiting.keys()})
        found = {name: one for name, one in found.items() if name not in self._waiting}
        since = {name: self._since(name, one, known, complete) for name, one in found.items()}
        self._last |= found
        self._lost |= {name for name in since if since[name] == "parts"}
        passed = ("no", "rows", "parts") if self._leave else ("no",)
        same = {name: one.form for name, one in found.items() if since[name] in passed}
        if changed := {name: found[name].form for name in since if since[name] == "rows" and name not in same}:
            lsn = ahead(connection)
            self._waiting |= {name: (lsn, form) for name, form in changed.items()}
            same |= {name: found[name].unsettled for name in changed if found[name].parts is not None}
        return same, {name for name in since if since[name] in ("keys", "parts") and name not in same}

    def _see_waiting(self, connection: Connection[Any], found: Mapping[str, Look]) -> None:
        """Look at tables that will be copied again: partitions may come and go until then."""
        for name, one in found.items():
            then = self._last[name]
            if one.parts is None or then.parts is None or one.parts.keys() == then.parts.keys():
                continue
            self._last[name] = one
            if then.parts.keys() - one.parts.keys():
                del self._waiting[name]
                self._lost.add(name)
            else:
                self._waiting[name] = ahead(connection), one.form

    def has_partitions(self, name: str) -> bool:
        """Whether a table had partitions when it was last looked at."""
        last = self._last.get(name)
        return last is not None and last.parts is not None

    def _since(self, name: str, one: Look, known: Mapping[str, str], complete: bool) -> Altered:
        if name not in known:
            return "no" if not complete else "rows" if one.parts is None else "parts"
        if name in self._lost:
            return "parts"
        then = self._last.get(name)
        found = one.since(known[name], then)
        if found == "no" and then is not None:
            gone = then.columns.keys() - one.columns.keys()
            self._dropped.setdefault(name, set()).update(then.columns[number] for number in gone)
        return found

    def is_new(self, relation: Relation) -> bool:
        """Whether the log has columns of a table that were not there when it was last looked at."""
        last = self._last.get(relation.namespace)
        return last is not None and not last.has(relation)

    def is_past(self, relation: Relation) -> bool:
        """Whether the log has columns of a table that it no longer has, and that were perhaps renamed since."""
        last = self._last.get(relation.namespace)
        if last is None or relation.namespace in self._waiting:
            return False
        past = _texts(relation) - set(last.columns.values())
        return bool(past - self._dropped.get(relation.namespace, set()))

    def ripe(self, lsn: int) -> dict[str, str]:
        """Those that can be copied, as so much is read, and their forms; they are forgotten here."""
        ready = {name: form for name, (until, form) in self._waiting.items() if until <= lsn}
        self.forget(ready)
        return ready

    def forget(self, namespaces: Iterable[str]) -> None:
        """These are copied for another reason."""
        for name in namespaces:
            self._waiting.pop(name, None)
            self._lost.discard(name)


def ahead(connection: Connection[Any]) -> int:
    """A place in the log behind all that is committed, which is sent soon even if nothing happens."""
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tailrace', 'altered')::text").fetchone()
    assert row is not None
    return lsn_number(row[0])
