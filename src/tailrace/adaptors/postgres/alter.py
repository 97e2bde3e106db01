"""Alterations: what ALTER TABLE does to rows that are there, which no log says.

Every row has a new column's default, or a column has another name, or USING has made other values of another type.  So
the catalog is looked at now and then.  A table with a key that is altered so is copied again, over what is there, once
all is read that was committed when it was noticed; one whose key is another is emptied first, as its rows have other
ids, and so is another table under its name.  (For tables without a key see recopy.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.position import lsn_number, mark

if TYPE_CHECKING:
    from psycopg import Connection

_LOOK = f"""
    SELECT asked.n, keys.mark, array_agg(a.attnum),
           array_agg(concat_ws(' ', a.attname, a.atttypid, a.atttypmod)),
           array_agg(a.atthasmissing OR a.atthasdef OR a.attnotnull)
    {catalog.ASKED}
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    CROSS JOIN LATERAL (
        SELECT left(md5(c.oid || ' ' || string_agg(k.attname::text, ' ' ORDER BY k.attnum)), 8) FROM pg_index i
        JOIN pg_attribute k ON k.attrelid = i.indrelid AND k.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
        WHERE i.indrelid = c.oid AND {catalog.IDENTIFIES}
    ) AS keys(mark)
    WHERE keys.mark IS NOT NULL
        AND (a.attgenerated = '' OR a.attgenerated = 's' AND current_setting('server_version_num')::int >= 180000)
    GROUP BY asked.n, keys.mark
"""

Altered = Literal["no", "rows", "keys"]


@dataclass(frozen=True, slots=True)
class Look:
    """A table as the catalog has it: a mark of it and its key, its columns by number, and which of them, were they new,
    may have a value in every row.  A new column has a greater number than any before it."""

    key: str
    columns: Mapping[int, str]
    filled: frozenset[int]

    @property
    def form(self) -> str:
        """What a position keeps of it."""
        return self._form(max(self.columns))

    def _form(self, last: int) -> str:
        some = (f"{number} {column}" for number, column in sorted(self.columns.items()) if number <= last)
        return f"{self.key}.{last}.{mark(some)}"

    def since(self, form: str, then: Look | None) -> Altered:
        """What has happened to its rows since it had a form; `then`: what it was, if that is known."""
        key, last, _ = form.split(".")
        if key != self.key:
            return "keys"
        known = then.columns if then is not None and then.form == form else None
        old = {number: column for number, column in self.columns.items() if number <= int(last)}
        # One that was dropped leaves the others as they were, but of a form alone that cannot be told.
        same = self._form(int(last)) == form if known is None else old.items() <= known.items()
        return "no" if same and not self.filled & (self.columns.keys() - old.keys()) else "rows"


def look(connection: Connection[Any], namespaces: Sequence[str]) -> dict[str, Look]:
    """Those of some tables that have a key."""
    return {
        name: Look(
            key,
            dict(zip(numbers, columns, strict=True)),
            frozenset(number for number, full in zip(numbers, filled, strict=True) if full),
        )
        for name, key, numbers, columns, filled in catalog.each(connection, _LOOK, namespaces)
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

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def find(
        self, connection: Connection[Any], namespaces: Iterable[str], known: Mapping[str, str]
    ) -> tuple[dict[str, str], set[str]]:
        """Look at tables: the forms of those that are still what `known` says, as far as rows go, and which have
        another key."""
        found = look(connection, sorted({*namespaces} - self._waiting.keys()))
        since = {name: one.since(known.get(name, one.form), self._last.get(name)) for name, one in found.items()}
        self._last |= found
        passed = "rows" if self._leave else "no"
        same = {name: one.form for name, one in found.items() if since[name] in ("no", passed)}
        if changed := {name: found[name].form for name in since if since[name] == "rows" and name not in same}:
            lsn = _ahead(connection)
            self._waiting |= {name: (lsn, form) for name, form in changed.items()}
        return same, {name for name in since if since[name] == "keys"}

    def ripe(self, lsn: int) -> dict[str, str]:
        """Those that can be copied, as so much is read, and their forms; they are forgotten here."""
        ready = {name: form for name, (until, form) in self._waiting.items() if until <= lsn}
        self.forget(ready)
        return ready

    def forget(self, namespaces: Iterable[str]) -> None:
        """These are copied for another reason."""
        for name in namespaces:
            self._waiting.pop(name, None)


def _ahead(connection: Connection[Any]) -> int:
    """A place in the log behind all that is committed, which is sent soon even if nothing happens."""
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = local")
        row = connection.execute("SELECT pg_logical_emit_message(true, 'tailrace', 'altered')::text").fetchone()
    assert row is not None
    return lsn_number(row[0])
