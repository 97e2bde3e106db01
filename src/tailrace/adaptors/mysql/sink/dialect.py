"""The SQL dialect of MySQL and MariaDB, for the sink."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa

from tailrace.adaptors.mysql import catalog, errors, names
from tailrace.adaptors.mysql.database import driver
from tailrace.adaptors.mysql.sink import column_types, widening
from tailrace.adaptors.mysql.sink.connection import Refused
from tailrace.adaptors.mysql.types import BYTES, INTEGERS
from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect, Origin, ProbeTable
from tailrace.adaptors.sql.target import Target, TargetColumn
from tailrace.errors import NotReady

_CHARACTERS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_KNOWN = {
    *INTEGERS, *BYTES, *_CHARACTERS, "decimal", "float", "double", "year", "bit", "date", "datetime", "timestamp",
    "time", "json", "enum", "set",
}  # fmt: skip
_OF_MARIADB = {"uuid", "inet4", "inet6"}
_COLUMNS = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION,
           CHARACTER_MAXIMUM_LENGTH, EXTRA, COLLATION_NAME
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_UNIQUE = """
    SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_STALE = """
    SELECT k.COLUMN_NAME FROM information_schema.STATISTICS k JOIN information_schema.COLUMNS c
        ON (c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME) = (k.TABLE_SCHEMA, k.TABLE_NAME, k.COLUMN_NAME)
    WHERE k.TABLE_SCHEMA = %s AND k.TABLE_NAME = %s AND k.INDEX_NAME = 'PRIMARY' AND c.COLUMN_DEFAULT IS NULL
        AND c.EXTRA = ''
"""
_WITHOUT_TRANSACTIONS = {"MyISAM", "Aria", "MEMORY", "CSV", "ARCHIVE", "BLACKHOLE", "MRG_MyISAM"}
_THERE = """SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
            WHERE (TABLE_SCHEMA, TABLE_NAME) IN ({})"""
_FIND = """SELECT TABLE_SCHEMA, TABLE_NAME, CREATE_TIME, ENGINE FROM information_schema.TABLES
           WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND TABLE_TYPE = 'BASE TABLE'"""
_BLAMED = re.compile(r"olumn [`']?(?:`?[^`'.]+`?\.){0,2}[`']?([^`'.]+)[`']")
_BINARY = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin", "utf8mb4_bin")
"""Collations that compare texts by their bytes, the best first: the last one ignores spaces at the end."""


class MySQLDialect(Dialect):
    """MySQL 8 and MariaDB 10.6, and newer."""

    system: ClassVar[str] = "MySQL"
    default_schema: ClassVar[str] = "public"
    reserved: ClassVar[frozenset[str]] = frozenset(catalog.SYSTEM)
    longest_name: ClassVar[int] = 64
    name_unit: ClassVar[Literal["bytes", "characters"]] = "characters"
    transactional_ddl: ClassVar[bool] = False

    # -- errors
    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """All exceptions of PyMySQL, and `Refused`."""
        return (driver().Error, Refused)

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """The errors about values that do not fit and about constraints."""
        return (Refused,)

    @property
    def unalterable(self) -> tuple[type[BaseException], ...]:
        """The errors of an ALTER TABLE that the server refuses, for an index, a foreign key or a missing right."""
        return (driver().Error, Refused)

    def first_line(self, error: BaseException) -> str:
        """Return the first line of the server's message, without the error's number."""
        return errors.text_of(error)

    def blamed_column(self, error: BaseException) -> str:
        """Return the column that the server's message names; "" if it names none."""
        found = _BLAMED.search(errors.text_of(error))
        return found[1] if found and "(" not in found[1] else ""

    # -- names and values
    def quote(self, *parts: str) -> str:
        """Quote the parts of a name and join them by dots."""
        return names.quote(*parts)

    def staged(self, field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
        """Return the staged column of a field, and its values as texts."""
        return column_types.staged(field, array)

    def as_texts(self, array: pa.Array[Any]) -> list[str | None]:
        """Return staged values as a list; they are texts already."""
        texts: list[str | None] = array.to_pylist()
        return texts

    def widens(self, now: str, wanted: str) -> bool:
        """See `widening.widens`."""
        return widening.widens(now, wanted)

    def rounds(self, now: str, source: str) -> bool:
        """See `widening.rounds`."""
        return widening.rounds(now, source)

    def retype(self, column: str, type: str) -> str:
        """Return the part of an ALTER TABLE that gives a column another type."""
        return f"MODIFY COLUMN {names.quote(column)} {type}"

    def column_type(self, connection: Any, type: str, *, keys: int) -> str:
        """Return a column's type for CREATE TABLE: with a length in a key, and with a binary collation for texts."""
        kind = type.split("(")[0].split(" ")[0]
        if keys and kind in column_types.ENDLESS:
            type = column_types.indexed_as(kind, keys)
            kind = type.split("(")[0]
        if column_types.is_too_long(type):
            type = kind = "mediumtext"
        if kind in _CHARACTERS or kind in ("enum", "set"):
            return f"{type} CHARACTER SET utf8mb4 COLLATE {_collation(connection)}"
        return f"{type} NULL" if kind == "timestamp" and not keys else type

    # -- the catalog
    def find(self, connection: SqlConnection, schema: str, name: str) -> tuple[str, str, str] | None:
        """Return a table's schema, name and CREATE_TIME, which TRUNCATE renews; None if the table is missing.

        Raise `NotReady` if the table's engine has no transactions."""
        row = connection.execute(_FIND, [schema, name]).fetchone()
        if row and row[3] in _WITHOUT_TRANSACTIONS:
            raise NotReady(
                f"{names.quote(schema, name)} of the sink is a table of {row[3]}, which has no transactions, so rows "
                f"and offsets could come apart; ALTER TABLE {names.quote(schema, name)} ENGINE = InnoDB;"
            )
        return (row[0], row[1], str(row[2])) if row else None

    def columns(self, connection: SqlConnection, file: Any) -> dict[str, TargetColumn]:
        """Return the columns of a table that `find` found."""
        found = connection.execute(_COLUMNS, list(file[:2])).fetchall()
        return {row[0]: _column(*row[1:]) for row in found}

    def has_unique(self, connection: SqlConnection, file: Any, keys: Sequence[str]) -> bool:
        """Return whether the table's only unique index is on exactly these columns.

        With a second one ON DUPLICATE KEY UPDATE could change another row: the one with the same value there."""
        indexes: dict[str, list[tuple[str, Any, str]]] = {}
        for index, column, part, nullable in connection.execute(_UNIQUE, list(file[:2])).fetchall():
            indexes.setdefault(index, []).append((column, part, nullable))
        if len(indexes) != 1:
            return False
        (columns,) = indexes.values()
        whole = all(part is None and nullable != "YES" for _, part, nullable in columns)
        return whole and sorted(column for column, _, _ in columns) == sorted(keys)

    def replaced_key(
        self, connection: SqlConnection, to: Target, keys: Sequence[str], filled: Collection[str]
    ) -> list[str]:
        """Return the parts of an ALTER TABLE that replace a primary key if rows no longer fill all of its columns."""
        found = [name for (name,) in connection.execute(_STALE, [to.schema, to.name]).fetchall()]
        if not (stale := [name for name in found if name not in filled]):
            return []
        nullable = [f"MODIFY COLUMN {names.quote(name)} {to.columns[name].exact} NULL" for name in stale]
        key = ", ".join(map(names.quote, keys))
        return ["DROP PRIMARY KEY", *nullable, f"ADD PRIMARY KEY ({key})"]

    def known_types(self, connection: Any, types: Sequence[str]) -> set[str]:
        """Return those of some types that the server knows."""
        known = _KNOWN | (_OF_MARIADB if connection.flavor == "mariadb" else set())
        return {type for type in types if type.split("(")[0].split(" ")[0] in known}

    def missing(self, connection: SqlConnection, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of some tables, by schema and name, that do not exist."""
        found: set[tuple[str, str]] = set()
        for at in range(0, len(tables), 500):
            some = tables[at : at + 500]
            marks = ", ".join(["(%s, %s)"] * len(some))
            rows = connection.execute(_THERE.format(marks), [part for table in some for part in table]).fetchall()
            found |= {(schema, name) for schema, name in rows}
        return set(tables) - found

    # -- tailrace's own tables
    def create_state(self, connection: SqlConnection, schema: str) -> None:
        """Create the database of the state and its tables `offsets` and `tables`, unless they exist."""
        text, made = "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "ENGINE = InnoDB"
        offsets = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "offsets")} (
            pipeline {text}, writer {text}, epoch bigint NOT NULL, offsets longtext, claimed boolean NOT NULL,
            changed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (pipeline, writer)) {made}"""
        tables = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "tables")} (
            pipeline {text}, writer {text}, namespace {text}, `schema` {text} NOT NULL, name {text} NOT NULL,
            filled boolean NOT NULL, PRIMARY KEY (pipeline, writer, namespace)) {made}"""
        for sql in (f"CREATE DATABASE IF NOT EXISTS {names.quote(schema)}", offsets, tables):
            connection.execute(sql)

    def staging_tables(self, connection: SqlConnection, schema: str) -> list[tuple[str, int]]:
        """Return the staging tables, each with the server's time in seconds since 1970."""
        sql = """SELECT TABLE_NAME, UNIX_TIMESTAMP() FROM information_schema.TABLES
                 WHERE TABLE_SCHEMA = %s AND TABLE_NAME REGEXP '^stage_[0-9a-f]+_[0-9a-f]{32}$'"""
        return [(table, int(now)) for table, now in connection.execute(sql, [schema]).fetchall()]

    def create_staging(self, schema: str, table: str, columns: Sequence[StagedColumn], *, wide: bool) -> str:
        """Return the statement that creates a staging table, whose value columns are texts."""
        kinds = [f"c{n} longtext" for n in range(len(columns))]
        inner = ", ".join(["n bigint PRIMARY KEY", "op tinyint", "unset text", *kinds])
        return (
            f"CREATE TABLE {names.quote(schema, table)} ({inner}) ENGINE = InnoDB ROW_FORMAT = DYNAMIC "
            "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )

    def insert_absent(self, table: str, values: int) -> str:
        """Return the statement that inserts a row unless its key exists."""
        first = table[table.index("(") + 1 :].split(",")[0].strip()
        return f"INSERT INTO {table} VALUES ({_marks(values)}) ON DUPLICATE KEY UPDATE {first} = {first}"

    def replace_values(self, table: str, keys: Sequence[str], others: Sequence[str], rows: int) -> str:
        """Return the statement that inserts rows, or updates the rows that exist under their keys."""
        values = ", ".join(f"({_marks(len(keys) + len(others))})" for _ in range(rows))
        into = ", ".join(map(names.quote, (*keys, *others)))
        return self.upsert(f"INSERT INTO {table} ({into}) VALUES {values}", (), list(map(names.quote, others)))

    # -- merging
    def inline(self, columns: Mapping[str, Sequence[Any]], texts: int) -> Origin:
        """Return staged rows as a subquery: a SELECT of parameters for each row, joined by UNION ALL."""
        rows = list(zip(*columns.values(), strict=True))
        first = "SELECT " + ", ".join(f"%s AS {name}" for name in columns)
        others = [f"SELECT {_marks(len(columns))}"] * (len(rows) - 1)
        values = [value.hex() if isinstance(value, bytes) else value for row in rows for value in row]
        return Origin(f"({' UNION ALL '.join([first, *others])}) s", values)

    def value(self, staged: str, kind: str, of: TargetColumn) -> str:
        """Return the expression that stores a staged value: mostly its text, which the column itself converts.

        So the server refuses a value that the column cannot hold.  In MariaDB a CAST within a larger statement raises
        no error."""
        if kind == "bytes":
            return f"UNHEX({staged})"
        if of.kind in _CHARACTERS:  # a staged column that has only nulls has no character set
            return f"CONVERT({staged} USING utf8mb4) COLLATE {_utf8(of)}"
        return _STORED.get(of.kind, "{}").format(staged)

    def compared(self, staged: str, kind: str, of: TargetColumn) -> str:
        """Return the expression that compares a staged value with a column's values: a cast to the column's type.

        Without a cast the server would compare a text with a number as doubles.  A CHAR has no spaces at its end, and
        a collation without padding does not overlook those of the staged text."""
        cast = _CASTS.get(of.kind)
        if of.kind == "char" and kind != "bytes":
            return self.value(f"TRIM(TRAILING ' ' FROM {staged})", kind, of)
        if kind == "bytes" or cast is None:
            return self.value(staged, kind, of)
        made = cast.format(staged, exact=of.exact.removesuffix(" unsigned"))
        is_number = kind in _NUMBERS or of.kind not in INTEGERS
        return made if is_number else f"CASE WHEN {staged} REGEXP '^-?[0-9]+$' THEN {made} END"

    def text_of(self, value: str, of: TargetColumn | None = None) -> str:
        """Return the expression of a value as text, with a binary collation."""
        return f"CAST(CONCAT({value}) AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"

    def confuses(self, of: TargetColumn) -> bool:
        """Return whether a column's collation takes different texts for equal."""
        return not of.spelled_once

    def is_unset(self, number: int) -> str:
        """Return the condition that a staged row leaves column `number` unchanged.

        It tests the column's bit in the bitmap `unset`, which is staged as hexadecimal digits."""
        digits = f"SUBSTRING(s.unset, {number // 8 * 2 + 1}, 2)"
        return f"(CAST(CONV({digits}, 16, 10) AS UNSIGNED) >> {number % 8}) & 1 = 1"

    def insert(self, table: str, where: str, columns: Iterable[str], values: Iterable[str], condition: str) -> str:
        """Return the statement that inserts staged rows."""
        return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {where} WHERE {condition}"

    def upsert(self, insert: str, keys: Sequence[str], others: Sequence[str], absent: Sequence[str] = ()) -> str:
        """Return an insert that updates the existing row of its key: it sets the others, and resets the absent ones."""
        sets = [f"{name} = VALUES({name})" for name in others or keys[:1]]
        sets += [f"{name} = DEFAULT({name})" for name in absent]
        return f"{insert} ON DUPLICATE KEY UPDATE {', '.join(sets)}"

    def update(self, table: str, where: str, sets: Mapping[str, str], condition: str) -> str:
        """Return the statement that sets columns of the rows that match staged ones."""
        assigned = ", ".join(f"t.{name} = {value}" for name, value in sets.items())
        return f"UPDATE {table} t, {where} SET {assigned} WHERE {condition}"

    def delete(self, table: str, where: str, condition: str) -> str:
        """Return the statement that deletes the rows that match staged ones."""
        return f"DELETE t FROM {table} t, {where} WHERE {condition}"

    def delete_equal(
        self, table: str, where: str, columns: Sequence[tuple[str, str, TargetColumn]], condition: str
    ) -> list[str]:
        """Return the statements that delete, from a table without a key, as many rows as are staged with equal values.

        MySQL has no row ids to tell equal rows apart.  So the statements delete all rows that equal a staged one, and
        insert the surplus again.  They compare rows as the columns hold them, by their bytes."""
        fields = [name for name, _, _ in columns]
        listed = ", ".join(fields)
        gone, left = "tailrace_gone", "tailrace_left"
        mine, theirs = _signature("g", columns), _signature("t", columns)
        return [
            f"DROP TEMPORARY TABLE IF EXISTS {gone}, {left}",
            f"CREATE TEMPORARY TABLE {gone} AS SELECT {listed} FROM {table} LIMIT 0",
            self.insert(gone, where, fields, [value for _, value, _ in columns], condition),
            f"""CREATE TEMPORARY TABLE {left} AS SELECT {", ".join(f"t.{name}" for name in fields)}, t.tailrace_sign
                FROM (SELECT t.*, {theirs} AS tailrace_sign, ROW_NUMBER() OVER (PARTITION BY {theirs}) AS tailrace_row
                      FROM {table} t) t
                JOIN (SELECT {mine} AS sign, COUNT(*) AS many FROM {gone} g GROUP BY sign) g
                ON g.sign = t.tailrace_sign AND t.tailrace_row > g.many""",
            f"DELETE t FROM {table} t JOIN (SELECT DISTINCT {mine} AS sign FROM {gone} g) g ON g.sign = {theirs}",
            f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {left}",
            f"DROP TEMPORARY TABLE IF EXISTS {gone}, {left}",
        ]

    def begin_merge(self, connection: SqlConnection) -> None:
        """Do nothing: the session checks no foreign keys."""

    def empty(self, connection: SqlConnection, table: str) -> None:
        """Delete all rows of a table, if it exists.

        TRUNCATE would commit the transaction and so release the lock that keeps a newer run out."""
        try:
            connection.execute(f"DELETE FROM {table}")
        except driver().Error as error:
            if errors.code_of(error) not in errors.NOT_THERE:
                raise

    def drop_tables(self, tables: Iterable[str]) -> str:
        """Return the statement that drops those of some tables that exist."""
        return f"DROP TABLE IF EXISTS {', '.join(tables)}"

    def probe(self, table: str) -> ProbeTable:
        """Return a temporary table of the same columns: creating or dropping it does not commit the transaction."""
        name = "tailrace_probe"
        create = f"CREATE TEMPORARY TABLE {name} AS SELECT * FROM {table} LIMIT 0"
        return ProbeTable(name, create, f"DROP TEMPORARY TABLE {name}")


_CASTS = {
    **dict.fromkeys(INTEGERS, "CAST({0} AS DECIMAL(20,0))"),
    "year": "CAST({0} AS SIGNED)",
    "bit": "CAST({0} AS UNSIGNED)",
    "decimal": "CAST({0} AS {exact})",
    "float": "({0} + 0e0)",
    "double": "({0} + 0e0)",
    "date": "CAST({0} AS DATE)",
    "datetime": "CAST({0} AS DATETIME(6))",
    "timestamp": "CAST({0} AS DATETIME(6))",
    "time": "CAST({0} AS TIME(6))",
}


_NUMBERS = {"bool", "int2", "int4", "int8", "float4", "float8"}
_STORED = {"bit": "CAST({} AS UNSIGNED)", "year": "CAST({} AS SIGNED)"}
"""Casts for the kinds of columns that would read a staged text as another value than the number in it."""


def _utf8(of: TargetColumn) -> str:
    return of.type if of.type.startswith("utf8mb4_") else "utf8mb4_bin"


def _signature(table: str, columns: Sequence[tuple[str, str, TargetColumn]]) -> str:
    parts = ", ".join(f"IFNULL(HEX({_text(f'{table}.{name}', of)}), '-')" for name, _, of in columns)
    return f"MD5(CONCAT_WS(',', {parts}))"


def _text(value: str, of: TargetColumn) -> str:
    """Return the expression of a column's value as text, which has every digit of a float: as a float the server would
    write it with six digits, and so take two different rows for equal."""
    return f"CONCAT({value} + 0e0)" if of.kind == "float" else f"CONCAT({value})"


def _collation(connection: Any) -> str:
    marks = ", ".join(f"'{name}'" for name in _BINARY)
    sql = f"SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN ({marks})"
    found = {name for (name,) in connection.execute(sql).fetchall()}
    return next(name for name in _BINARY if name in found)


def _column(kind: str, text: str, *more: Any) -> TargetColumn:
    *numbers, extra, collation = more
    type = catalog.column_type(kind, text, *numbers)
    generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
    once = collation is None or kind == "json" or collation in _BINARY[:2]
    return TargetColumn(collation or "", kind, False, generated, False, type.name, once)


def _marks(count: int) -> str:
    return ", ".join(["%s"] * count)
