"""Alterations: what ALTER TABLE does to existing rows without a change in the log.

A new column gives every row its default, a column gets another name, or USING makes new values of another type.  A new
column without values may also have the name of a dropped one, whose values the sinks still have.  So the follower looks
into the catalog from time to time.  When it finds a table with a key altered in this way, it has the table copied
again, over the rows that the sinks have, once it has read everything that was committed when it looked.  If the key
itself is another, or another table now has the name, the sinks are emptied first, because the rows have other ids.
(For tables without a key see recopy.)

A partition that is attached adds its rows, and a partition that is detached or dropped removes its rows, without a
change in the log.  A partition that was created as one had all its rows in the log.  A partition that came and went
between two looks leaves no trace in the catalog, but the log describes the table again before the partition's first
change.  The follower then looks at the table.  Of the changes that were committed before this look, those of rows that
no longer exist become deletes.

A position has the form of each table as of the last look at it.  The rows before the position must have been read with
this form.  A column that is added and renamed between two looks leaves only its last name in the catalog, and a kill of
the process makes the time between two looks long.  So the follower looks at a table as soon as the log has columns that
it has not seen, before a position passes over them.  If the catalog no longer has them, it forgets the form.  A table
without a form is copied again.
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

# A table that was created as a partition has its columns from the same command.  ATTACH writes all its columns again.
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
"""The form of a name whose rows in the sinks are not those of the table that has the name now.  No table has this
form."""
Altered = Literal["no", "rows", "parts", "keys"]
"""What has happened to a table's rows: nothing; some were added, or have other values; some were removed; they have
other ids."""


@dataclass(frozen=True, slots=True)
class Look:
    """A table as the catalog has it.

    `key` is a mark of the table and its key.  `columns` are the columns by number, and `filled` those that, if they are
    new, may have a value in every row; a new column has a greater number than any column before it.  `parts` has the
    partitions by oid, and whether they were created as partitions; a new partition has a greater oid."""

    key: str
    columns: Mapping[int, str]
    filled: frozenset[int]
    parts: Mapping[int, bool] | None = None

    @property
    def form(self) -> str:
        """The form of the table, as a position keeps it."""
        form = self._form(max(self.columns))
        return form if self.parts is None else f"{form}.{self._parts(max(self.parts, default=0))}"

    @property
    def unsettled(self) -> str:
        """The form that a position keeps of an altered table until the pipeline has copied it again.  It has the
        partitions, so that those that go meanwhile are noticed."""
        key, last, _, parts = self.form.split(".")
        return f"{key}.{last}.unsettled.{parts}"

    def _form(self, last: int) -> str:
        some = (f"{number} {column}" for number, column in sorted(self.columns.items()) if number <= last)
        return f"{self.key}.{last}.{mark(some)}"

    def _parts(self, newest: int) -> str:
        return f"{newest}-{mark(str(oid) for oid in sorted(self.parts or ()) if oid <= newest)}"

    def has(self, relation: Relation) -> bool:
        """Whether the catalog has all columns of a table as the log describes it."""
        return _texts(relation) <= set(self.columns.values())

    def since(self, form: str, then: Look | None) -> Altered:
        """What has happened to the rows since the table had this form.  `then` is the look at that time, if it is
        known."""
        key, last, columns, *parts = form.split(".")
        if key != self.key:
            return "keys"
        if parts and (came := self._came(parts[0], then)) != "no":
            return came
        return self._columns_since(f"{key}.{last}.{columns}", then)

    def _came(self, parts: str, then: Look | None) -> Altered:
        """What has happened to the partitions."""
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
        # A dropped column leaves the others as they were, but the form alone does not show that.
        same = self._form(int(last)) == form if known is None else old.items() <= known.items()
        return "no" if same and not self.filled & (self.columns.keys() - old.keys()) else "rows"


def _texts(relation: Relation) -> set[str]:
    """The columns that the log describes, in the form that a look has them."""
    return {f"{column.name} {column.type} {column.modifier}" for column in relation.columns}


def look(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, Look]:
    """Look at tables; return those that exist and have a key."""
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
    """Return the forms of tables: what a position keeps of each to notice what ALTER TABLE has done."""
    return {name: one.form for name, one in look(connection, namespaces).items()}


def moved(connection: Connection[Any], before: Mapping[str, Mapping[str, int]]) -> set[str]:
    """Return the tables whose rows are in other files than before: all their rows may have moved."""
    now = catalog.files(connection, list(before))
    return {name for name, old in before.items() if any(old.get(n, f) != f for n, f in now.get(name, {}).items())}


class Alterations:
    """The tables that were found altered, until they are copied again.  With `leave` they are not copied."""

    def __init__(self, *, leave: bool) -> None:
        self._leave = leave
        self._waiting: dict[str, tuple[int, str]] = {}
        self._last: dict[str, Look] = {}
        self._lost: set[str] = set()
        """Tables that have lost rows with a partition and are not copied yet.  Only the look that found it shows it."""
        self._dropped: dict[str, set[str]] = {}
        """The columns of each table that are known to be dropped and not renamed."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(
        self, connection: Connection[Any], namespaces: Iterable[str], known: Mapping[str, str], *, complete: bool = True
    ) -> tuple[dict[str, str], set[str]]:
        """Look at tables.  Returns the forms of those whose rows are still what `known` says, and the names of those
        that have another key or have lost rows.

        The other altered tables wait until `ripe` returns them.  `complete`: `known` has every table whose rows are
        known."""
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
        """Look at tables that wait to be copied again: partitions may come and go until then."""
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
        """Whether the log has columns of a table that it did not have when it was last looked at."""
        last = self._last.get(relation.namespace)
        return last is not None and not last.has(relation)

    def is_past(self, relation: Relation) -> bool:
        """Whether the log has columns of a table that it no longer has, and that may have been renamed since."""
        last = self._last.get(relation.namespace)
        if last is None or relation.namespace in self._waiting:
            return False
        past = _texts(relation) - set(last.columns.values())
        return bool(past - self._dropped.get(relation.namespace, set()))

    def ripe(self, lsn: int) -> dict[str, str]:
        """Return the tables that can be copied now that the log is read up to `lsn`, with their forms, and forget
        them."""
        ready = {name: form for name, (until, form) in self._waiting.items() if until <= lsn}
        self.forget(ready)
        return ready

    def forget(self, namespaces: Iterable[str]) -> None:
        """Forget tables that are copied for another reason."""
        for name in namespaces:
            self._waiting.pop(name, None)
            self._lost.discard(name)


def ahead(connection: Connection[Any]) -> int:
    """Return a place in the log behind everything that is committed.  The server sends this place soon, even if nothing
    happens: a message is written to the log."""
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tailrace', 'altered')::text").fetchone()
    assert row is not None
    return lsn_number(row[0])
