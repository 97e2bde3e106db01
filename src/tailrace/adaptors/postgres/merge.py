"""Merging: the statements that make a staged unit part of its table.  Nothing here talks to a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.adaptors.postgres import columns, names
from tailrace.adaptors.postgres.target import Target, TargetColumn
from tailrace.adaptors.postgres.unit import Unit
from tailrace.errors import Rejected
from tailrace.log.record import Op

_NUMBERS = {"int2", "int4", "int8", "float4", "float8", "numeric"}


class Origin(NamedTuple):
    """Where a unit's rows are: what stands after FROM, the values it needs, and whether all columns are texts."""

    sql: str
    values: Sequence[Any] = ()
    texts: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a unit and of its table."""

    name: str
    value: str
    """The staged value, cast to the column's type."""
    number: int
    key: bool
    settable: bool

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return names.quote(self.name)


def origin(unit: Unit, state: str) -> Origin:
    """Where the rows of a unit are, under the name s."""
    if unit.table:
        return Origin(f"{names.quote(state, unit.table)} s")
    batch = pa.ipc.open_stream(unit.data).read_next_batch()
    if unit.wide:
        lists = batch.column("rest").to_pylist()
        texts = [[row[n] for row in lists] for n in range(len(unit.columns))]
    else:
        texts = [columns.as_texts(batch.column(f"c{n}")) for n in range(len(unit.columns))]
    _no_zeros(unit, texts)
    aliases = ", ".join(["n", "op", "unset", *(f"c{n}" for n in range(len(texts)))])
    arrays = ", ".join(["%s::int8[]", "%s::int2[]", "%s::bytea[]", *("%s::text[]" for _ in texts)])
    first = [batch.column(name).to_pylist() for name in ("n", "op", "unset")]
    return Origin(f"unnest({arrays}) AS s({aliases})", [*first, *texts], True)


def _no_zeros(unit: Unit, texts: list[list[str | None]]) -> None:
    """The server has no text with a zero character, and the driver would not say where it is."""
    for column, values in zip(unit.columns, texts, strict=True):
        for n, value in enumerate(values):
            if value is not None and "\0" in value:
                id = "\x1f".join(
                    str(texts[k][n]) for k, c in enumerate(unit.columns) if not unit.keys or c.name in unit.keys
                )
                raise Rejected(
                    f"{unit.namespace}: column {column.name}, id {id}: no text of PostgreSQL has the character 0x00",
                    namespace=unit.namespace,
                    id=id,
                )


def bound(sql: str, where: Origin) -> tuple[str, Sequence[Any] | None]:
    """A statement and its values for the driver, for which a percent sign in a name is written twice."""
    if not where.values:
        return sql, None
    return where.sql.join(part.replace("%", "%%") for part in sql.split(where.sql)), where.values


def fields(unit: Unit, target: Target, where: Origin) -> list[Field]:
    """The columns to write: all that are not the table's own affair."""
    out = []
    for n, column in enumerate(unit.columns):
        of = target.columns[column.name]
        if of.generated:
            continue
        staged = f"s.rest[{n + 1}]" if unit.wide and not where.texts else f"s.c{n}"
        kind = "text" if (unit.wide or where.texts) and column.kind != "json" else column.kind
        out.append(Field(column.name, value(staged, kind, of), n, column.name in unit.keys, not of.always))
    return out


def value(staged: str, kind: str, of: TargetColumn) -> str:
    """A staged value as one of a column's type.  Never with its modifiers: an explicit cast to varchar(3) would cut."""
    if kind == of.kind != "json" and of.type.startswith("pg_catalog."):
        return staged
    if kind == "json" and of.array:
        inner = f"ARRAY(SELECT pg_catalog.jsonb_array_elements_text({staged}::pg_catalog.jsonb))"
        return f"CASE WHEN {staged} IS NOT NULL THEN {inner}::{of.type} END"
    if kind in ("text", "json") or (kind in _NUMBERS and of.kind in _NUMBERS):
        return f"{staged}::{of.type}"
    return f"{staged}::text::{of.type}"


def statements(unit: Unit, target: Target, where: Origin, span: tuple[int, int] | None = None) -> Iterator[str]:
    """What merges a unit, or only the rows of it whose numbers are in a span."""
    some = fields(unit, target, where)
    within = f" AND s.n >= {span[0]} AND s.n < {span[1]}" if span else ""
    if not unit.keys:
        yield from _without_key(unit, target, where, some, within)
        return
    same = " AND ".join(f"t.{field.sql} = {field.value}" for field in some if field.key)
    gone = f"DELETE FROM {target.sql} t USING {where.sql} WHERE {{}}{within} AND {same}"
    if unit.deletes:
        yield gone.format(f"s.op = {Op.DELETE}")
    if unit.partial:
        yield from _update(unit, target, where, some, f"s.unset IS NOT NULL{within} AND {same}")
    if unit.upserts:
        whole = f"s.op <> {Op.DELETE} AND s.unset IS NULL"
        if not target.unique:
            yield gone.format(whole)
        yield _insert(target, where, some, f"{whole}{within}") + (_conflict(some) if target.unique else "")


def plain(unit: Unit, target: Target, where: Origin) -> str | None:
    """One statement that merges a unit of which no id is there yet, at half the cost; None if it may not be tried."""
    if not (unit.table and unit.keys and target.unique and unit.upserts == unit.rows):
        return None
    return _insert(target, where, fields(unit, target, where), "true")


def _insert(target: Target, where: Origin, some: Sequence[Field], condition: str) -> str:
    into = ", ".join(field.sql for field in some)
    values = ", ".join(field.value for field in some)
    return (
        f"INSERT INTO {target.sql} ({into}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {where.sql} WHERE {condition}"
    )


def _conflict(some: Sequence[Field]) -> str:
    keys = ", ".join(field.sql for field in some if field.key)
    sets = ", ".join(f"{field.sql} = excluded.{field.sql}" for field in some if field.settable and not field.key)
    return f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")


def _update(unit: Unit, target: Target, where: Origin, some: Sequence[Field], condition: str) -> Iterator[str]:
    def kept(field: Field) -> str:
        unset = f"pg_catalog.get_bit(s.unset, {field.number}) = 1"
        return f"{field.sql} = CASE WHEN {unset} THEN t.{field.sql} ELSE {field.value} END"

    sets = ", ".join(kept(field) for field in some if field.settable and not field.key)
    if sets:
        yield f"UPDATE {target.sql} t SET {sets} FROM {where.sql} WHERE {condition}"


def _without_key(unit: Unit, target: Target, where: Origin, some: Sequence[Field], within: str) -> Iterator[str]:
    """Rows are found by all their values, as text, which every type has, and which can be hashed."""
    if unit.deletes:
        mine = ", ".join(field.value for field in some)
        theirs = ", ".join(f"t.{field.sql}" for field in some)
        yield f"""
            WITH gone AS (SELECT ROW({mine})::text AS text, count(*) AS many FROM {where.sql}
                          WHERE s.op = {Op.DELETE}{within} GROUP BY 1),
            found AS (SELECT t.tableoid AS o, t.ctid AS c, g.many, row_number() OVER (PARTITION BY g.text) AS n
                      FROM {target.sql} t JOIN gone g ON g.text = ROW({theirs})::text)
            DELETE FROM {target.sql} t USING found f WHERE t.tableoid = f.o AND t.ctid = f.c AND f.n <= f.many"""
    if unit.upserts:
        yield _insert(target, where, some, f"s.op <> {Op.DELETE}{within}")
