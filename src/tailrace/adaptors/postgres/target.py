"""The target: a sink's table, made or widened when asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.columns import Staged
from tailrace.adaptors.postgres.settings import PostgresSink
from tailrace.adaptors.postgres.unit import Unit
from tailrace.errors import BadInput, NotReady

if TYPE_CHECKING:
    from psycopg import Connection

LONGEST = 63
"""Bytes of the longest name; the server would cut a longer one without a word."""
_COLUMNS = """
    SELECT a.attname, quote_ident(n.nspname) || '.' || quote_ident(t.typname), b.typname,
           t.typcategory = 'A', a.attgenerated <> '', a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE = """
    SELECT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid
        AND i.indpred IS NULL AND i.indexprs IS NULL AND %s = (
            SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_attribute a
            WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])))
"""
_FIND = """SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')"""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the sink.  `type` is its type's name without modifiers, `kind` the name of the type beneath."""

    type: str
    kind: str
    array: bool
    generated: bool
    always: bool


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the sink.  `unique`: it has a unique index on the unit's keys."""

    schema: str
    name: str
    columns: dict[str, TargetColumn]
    unique: bool

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return names.quote(self.schema, self.name)


def place(settings: PostgresSink, namespace: str) -> tuple[str, str]:
    """The schema and table that a namespace is written to."""
    schema, name = names.parts(namespace)
    for part in (settings.schema or schema, name):
        if len(part.encode()) > LONGEST:
            raise BadInput(f"{namespace}: PostgreSQL's names have at most {LONGEST} bytes; rename it on the way")
    return settings.schema or schema, name


def prepare(connection: Connection[Any], settings: PostgresSink, unit: Unit) -> Target:
    """The table for a unit, with a column for each of its fields."""
    schema, name = place(settings, unit.namespace)
    oid = _find(connection, schema, name)
    if oid is None:
        _make(connection, settings, schema, unit, create_sql(connection, schema, name, unit))
        oid = _find(connection, schema, name)
    if oid is None:
        raise NotReady(
            f"{unit.namespace}: {names.quote(schema, name)} of the sink is not a table; drop or rename it, or write "
            "into another schema: schema = '…'"
        )
    target = _read(connection, oid, schema, name, unit.keys)
    missing = [column for column in unit.columns if column.name not in target.columns]
    if missing:
        _widen(connection, settings, target, missing)
        target = _read(connection, oid, schema, name, unit.keys)
    return target


def _find(connection: Connection[Any], schema: str, name: str) -> int | None:
    row = connection.execute(_FIND, [schema, name]).fetchone()
    return row[0] if row else None


def _read(connection: Connection[Any], oid: int, schema: str, name: str, keys: Sequence[str]) -> Target:
    columns = {row[0]: TargetColumn(*row[1:]) for row in connection.execute(_COLUMNS, [oid]).fetchall()}
    row = connection.execute(_UNIQUE, [oid, sorted(keys)]).fetchone()
    return Target(schema, name, columns, bool(row and row[0]))


def _make(connection: Connection[Any], settings: PostgresSink, schema: str, unit: Unit, sql: str) -> None:
    if not settings.create:
        raise NotReady(f"the sink has no table for {unit.namespace}; set create = true, or: {sql};")
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {names.quote(schema)}")
    connection.execute(sql)


def _widen(connection: Connection[Any], settings: PostgresSink, target: Target, missing: Sequence[Staged]) -> None:
    added = ", ".join(f"ADD COLUMN {column}" for column in _columns(connection, missing))
    sql = f"ALTER TABLE {target.sql} {added}"
    if not settings.alter:
        which = ", ".join(column.name for column in missing)
        raise NotReady(f"the sink's table {target.sql} has no column {which}; set alter = true, or: {sql};")
    connection.execute(sql)


def create_sql(connection: Connection[Any], schema: str, name: str, unit: Unit) -> str:
    """The statement that makes a table for a unit."""
    parts = _columns(connection, unit.columns)
    parts += [f"PRIMARY KEY ({', '.join(map(names.quote, unit.keys))})"] if unit.keys else []
    return f"CREATE TABLE IF NOT EXISTS {names.quote(schema, name)} ({', '.join(parts)})"


def _columns(connection: Connection[Any], columns: Sequence[Staged]) -> list[str]:
    """Columns as a definition has them, each of the first of its types that the server knows."""
    sql = "SELECT type FROM unnest(%s::text[]) AS t(type) WHERE to_regtype(type) IS NOT NULL"
    named = sorted({type for column in columns for type in column.types})
    known = {type for (type,) in connection.execute(sql, [named]).fetchall()}
    chosen = [next((type for type in column.types if type in known), "text") for column in columns]
    return [f"{names.quote(column.name)} {type}" for column, type in zip(columns, chosen, strict=True)]
