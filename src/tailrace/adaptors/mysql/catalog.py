"""The catalog: the server's tables, with the columns and the primary key of each, as information_schema lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tailrace.adaptors.mysql import names
from tailrace.adaptors.mysql.database import ask
from tailrace.adaptors.mysql.types import INTEGERS, Type, named
from tailrace.errors import NotThere

SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
_TABLES = """
    SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS, AVG_ROW_LENGTH FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN {system}{one} ORDER BY 1, 2
"""
_COLUMNS = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION,
           CHARACTER_MAXIMUM_LENGTH
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEYS = """
    SELECT COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""
_ITEM = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name and its type."""

    name: str
    type: Type

    @property
    def expression(self) -> str:
        """The SQL expression that a SELECT needs so that the server sends every digit of the column."""
        quoted = names.quote(self.name)
        if self.type.kind == "float":  # as a float the server would write it with six digits
            return f"({quoted} + 0e0)"
        return f"({quoted} + 0)" if self.type.kind == "bit" else quoted


@dataclass(frozen=True, slots=True)
class Table:
    """The present columns and key columns of a table; `cuttable`: whether a SELECT can ask for a range of its key."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    cuttable: bool = False

    @property
    def namespace(self) -> str:
        """The table's namespace: schema and name."""
        return names.namespace(self.schema, self.name)

    @property
    def quoted(self) -> str:
        """The table's name, quoted for SQL of MySQL."""
        return names.quote(self.schema, self.name)


class Listed(NamedTuple):
    """A table, with the server's estimate of its number of rows."""

    namespace: str
    rows: int


def tables(connection: Any, database: str) -> list[Listed]:
    """Return every table of a database; without a database, of all except the system's databases."""
    one = f" AND TABLE_SCHEMA = {names.literal(database)}" if database else ""
    found = ask(connection, _TABLES.format(system=SYSTEM, one=one))
    return [Listed(names.namespace(schema, name), int(rows or 0)) for schema, name, rows, _ in found]


def table(connection: Any, namespace: str, database: str) -> Table:
    """Return a table's columns and key; raise `NotThere` if the table is missing, or hidden from this user."""
    schema, name = names.parts(namespace, database)
    found = ask(connection, _COLUMNS, schema, name)
    if not found:
        raise NotThere(
            f"there is no table {namespace}, or its columns are hidden from this user; "
            f"GRANT SELECT ON {names.quote(schema, name)} shows them, `tailrace test` lists what there is"
        )
    columns = tuple(Column(column, column_type(kind, text, *rest)) for column, kind, text, *rest in found)
    keys = ask(connection, _KEYS, schema, name)
    kinds = {column.name: column.type.kind for column in columns}
    cuttable = bool(keys) and all(part is None and kinds[key] in RANGED for key, part in keys)
    return Table(schema, name, columns, tuple(key for key, _ in keys), cuttable)


RANGED = {*INTEGERS, "decimal", "char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "uuid"}
"""The kinds of key columns whose bounds can be written exactly in a WHERE clause."""


def column_type(kind: str, text: str, precision: Any, scale: Any, fraction: Any, longest: Any) -> Type:
    """Build a type from the columns of information_schema.COLUMNS that describe it."""
    unsigned = "unsigned" in text
    if kind == "decimal":
        name = named(kind, unsigned=unsigned, size=int(precision), scale=int(scale))
        return Type(kind, name, unsigned, int(precision), int(scale))
    if kind == "bit":
        return Type(kind, named(kind, size=int(precision)), precision=int(precision))
    if kind in ("enum", "set"):
        return Type(kind, named(kind, values=[item.replace("''", "'") for item in _ITEM.findall(text)]))
    if kind in ("char", "varchar", "binary", "varbinary"):
        return Type(kind, named(kind, size=int(longest)), precision=int(longest))
    if kind in ("time", "datetime", "timestamp"):
        return Type(kind, named(kind, size=int(fraction or 0)), precision=int(fraction or 0))
    return Type(kind, named(kind, unsigned=unsigned), unsigned)


def there(connection: Any, namespaces: Iterable[str], database: str) -> set[str]:
    """Return the namespaces whose tables exist."""
    listed = {one.namespace for one in tables(connection, database)}
    return {name for name in namespaces if name in listed}


def keys_of(connection: Any, namespaces: Sequence[str], database: str) -> dict[str, list[str]]:
    """Return the primary key columns of each table that has a primary key; one query reads all of them."""
    sql = (
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE INDEX_NAME = 'PRIMARY' "
        f"AND TABLE_SCHEMA NOT IN {SYSTEM} ORDER BY 1, 2, SEQ_IN_INDEX"
    )
    found: dict[str, list[str]] = {}
    for schema, name, column in ask(connection, sql):
        found.setdefault(names.namespace(schema, name), []).append(column)
    return {name: found[name] for name in namespaces if name in found}
