"""A second dialect, as small as one can be: SQLite, with a connection as the SQL sink needs it and a bulk load.

It shows that what is in adaptors.sql is not PostgreSQL's.  A schema is the first part of a table's name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Settings, Staged
from tailrace.adaptors.rows.unset import is_unset
from tailrace.adaptors.sql import staging
from tailrace.adaptors.sql.columns import StagedColumn, staged_form
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect, Origin, ProbeTable
from tailrace.adaptors.sql.staged_rows import StagedRows, new_table
from tailrace.adaptors.sql.target import TargetColumn
from tailrace.adaptors.sql.writer import SqlWriter
from tailrace.errors import Rejected

TYPES = {"int2": "integer", "int4": "integer", "int8": "integer", "bool": "integer", "bytes": "blob"}
TYPES |= {"float4": "real", "float8": "real"}


class SqliteSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    schema: str | None = None
    create: bool = False
    alter: bool = False
    state: str = "tailrace"


class Connection:
    """sqlite3's, with %s for values, and transactions that nest."""

    def __init__(self, path: str, ddl_commits: bool) -> None:
        self._ddl_commits = ddl_commits
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA foreign_keys = on")
        self._database.create_function("from_hex", 1, lambda text: None if text is None else bytes.fromhex(text))
        self._database.create_function("is_unset", 2, is_unset)
        self.closed, self._depth = False, 0

    def execute(self, query: str, params: Any = None) -> Any:
        is_ddl = query.startswith(("CREATE TABLE", "ALTER", "DROP"))
        assert not (self._ddl_commits and self._depth and is_ddl), f"it would commit the batch: {query}"
        return self._database.execute(query.replace("%s", "?").replace("%%", "%"), params or ())

    @contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[None]:
        name = f"s{self._depth}"
        self._database.execute("BEGIN IMMEDIATE" if not self._depth else f"SAVEPOINT {name}")
        self._depth += 1
        ok = False
        try:
            yield
            ok = not force_rollback
        finally:
            self._depth -= 1
            if self._depth:
                self._database.execute(f"RELEASE {name}" if ok else f"ROLLBACK TO {name}")
            else:
                self._end(ok)

    def _end(self, ok: bool) -> None:
        try:
            if ok:
                self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def close(self) -> None:
        self.closed = True
        self._database.close()


class Database:
    def __init__(self, path: str, ddl_commits: bool) -> None:
        self.where, self._ddl_commits = path, ddl_commits

    def open(self) -> Connection:
        return Connection(self.where, self._ddl_commits)

    @contextmanager
    def connect(self, doing: str = "asking") -> Iterator[Connection]:
        connection = self.open()
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def guarded(self, doing: str, namespace: str = "") -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise Rejected(f"{doing}: {error}", namespace=namespace) from None


class SqliteDialect(Dialect):
    system: ClassVar[str] = "SQLite"
    default_schema: ClassVar[str] = "main"
    reserved: ClassVar[frozenset[str]] = frozenset({"sqlite"})
    longest_name: ClassVar[int] = 1000
    for_update: ClassVar[str] = ""
    errors = (sqlite3.Error,)
    refusals = (sqlite3.IntegrityError, sqlite3.DataError)
    unalterable = (sqlite3.OperationalError,)

    def first_line(self, error: BaseException) -> str:
        return str(error)

    def quote(self, *parts: str) -> str:
        return '"' + ".".join(parts).replace('"', '""') + '"'

    def staged(self, field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
        kind, values = staged_form(array)
        return StagedColumn(field.name, kind, (TYPES.get(kind, "text"),)), values

    def as_texts(self, array: pa.Array[Any]) -> list[str | None]:
        return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]

    def widens(self, now: str, wanted: str) -> bool:
        return False

    rounds = widens

    def retype(self, column: str, type: str) -> str:
        raise AssertionError("no column is ever retyped")

    def create_schema(self, schema: str) -> str:
        return ""

    def find(self, connection: SqlConnection, schema: str, name: str) -> str | None:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = %s"
        row = connection.execute(sql, [f"{schema}.{name}"]).fetchone()
        return row[0] if row else None

    def columns(self, connection: SqlConnection, file: Any) -> dict[str, TargetColumn]:
        found = connection.execute("SELECT name, type FROM pragma_table_info(%s)", [file]).fetchall()
        return {name: TargetColumn(type, type, False, False, False, type) for name, type in found}

    def has_unique(self, connection: SqlConnection, file: Any, keys: Sequence[str]) -> bool:
        found = connection.execute("SELECT name FROM pragma_table_info(%s) WHERE pk > 0", [file]).fetchall()
        return bool(keys) and {name for (name,) in found} == set(keys)

    def known_types(self, connection: SqlConnection, types: Sequence[str]) -> set[str]:
        return set(types)

    def missing(self, connection: SqlConnection, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        return {table for table in tables if self.find(connection, *table) is None}

    def create_state(self, connection: SqlConnection, schema: str) -> None:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.quote(schema, 'offsets')} (pipeline, writer, epoch, offsets, claimed, "
            "changed_at, PRIMARY KEY (pipeline, writer))"
        )
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.quote(schema, 'tables')} (pipeline, writer, namespace, schema, name, "
            "filled, PRIMARY KEY (pipeline, writer, namespace))"
        )

    def staging_tables(self, connection: SqlConnection, schema: str) -> list[tuple[str, int]]:
        sql = "SELECT substr(name, %s), unixepoch() FROM sqlite_master WHERE name LIKE %s"
        return connection.execute(sql, [len(schema) + 2, f"{schema}.stage_%"]).fetchall()

    def create_staging(self, schema: str, table: str, columns: Sequence[StagedColumn], *, wide: bool) -> str:
        names = ", ".join(["n", "op", "unset", *(f"c{n}" for n in range(len(columns)))])
        return f"CREATE TABLE {self.quote(schema, table)} ({names})"

    def insert_absent(self, table: str, values: int) -> str:
        return f"INSERT OR IGNORE INTO {table} VALUES ({', '.join(['%s'] * values)})"

    def replace_values(self, table: str, keys: Sequence[str], others: Sequence[str], rows: int) -> str:
        row = f"({', '.join(['%s'] * (len(keys) + len(others)))})"
        return f"REPLACE INTO {table} ({', '.join((*keys, *others))}) VALUES {', '.join([row] * rows)}"

    def inline(self, columns: Mapping[str, Sequence[Any]], texts: int) -> Origin:
        rows = [[v.hex() if isinstance(v, bytes) else v for v in row] for row in zip(*columns.values(), strict=True)]
        fields = [
            f"from_hex(json_extract(value, '$[{n}]')) AS {name}" if name == "unset" else f"value ->> '$[{n}]' AS {name}"
            for n, name in enumerate(columns)
        ]
        return Origin(f"(SELECT {', '.join(fields)} FROM json_each(%s)) s", [msgspec.json.encode(rows).decode()], True)

    def value(self, staged: str, kind: str, of: TargetColumn) -> str:
        return f"CAST({staged} AS {of.type})" if of.type in ("integer", "real") else staged

    def text_of(self, value: str, of: TargetColumn | None = None) -> str:
        return f"CAST({value} AS text)"

    def is_unset(self, number: int) -> str:
        return f"is_unset(s.unset, {number})"

    def insert(self, table: str, where: str, columns: Iterable[str], values: Iterable[str], condition: str) -> str:
        return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {where} WHERE {condition}"

    def upsert(self, insert: str, keys: Sequence[str], others: Sequence[str], absent: Sequence[str] = ()) -> str:
        sets = ", ".join([*(f"{name} = excluded.{name}" for name in others), *(f"{name} = NULL" for name in absent)])
        return f"{insert} ON CONFLICT ({', '.join(keys)}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")

    def update(self, table: str, where: str, sets: Mapping[str, str], condition: str) -> str:
        assigned = ", ".join(f"{name} = {value}" for name, value in sets.items())
        return f"UPDATE {table} AS t SET {assigned} FROM {where} WHERE {condition}"

    def delete(self, table: str, where: str, condition: str) -> str:
        return f"DELETE FROM {table} AS t WHERE EXISTS (SELECT 1 FROM {where} WHERE {condition})"

    def delete_equal(
        self, table: str, where: str, columns: Sequence[tuple[str, str, TargetColumn]], condition: str
    ) -> list[str]:
        same = " AND ".join(f"t.{name} IS {value}" for name, value, _ in columns)
        first = f"SELECT min(t.rowid) FROM {where}, {table} t WHERE {condition} AND {same} GROUP BY s.n"
        return [f"DELETE FROM {table} WHERE rowid IN ({first})"]

    def begin_merge(self, connection: SqlConnection) -> None:
        connection.execute("PRAGMA defer_foreign_keys = on")

    def empty(self, connection: SqlConnection, table: str) -> None:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = %s", [table.strip('"')]).fetchone():
            connection.execute(f"DELETE FROM {table}")

    def drop_tables(self, tables: Iterable[str]) -> str:
        (table,) = tables
        return f"DROP TABLE IF EXISTS {table}"

    def probe(self, table: str) -> ProbeTable:
        return ProbeTable("probe", f"CREATE TEMP TABLE probe AS SELECT * FROM {table} WHERE 0")


class Loader:
    def __init__(self, writer: SqliteWriter, stack: ExitStack) -> None:
        self._dialect = writer.dialect
        self._connection = stack.enter_context(Database(writer.database.where, False).connect("staging"))
        stack.enter_context(self._connection.transaction())

    def load(self, rows: StagedRows, data: pa.RecordBatch) -> StagedRows:
        table = new_table(0xFFFFFFFF)
        self._connection.execute(self._dialect.create_staging("tailrace", table, rows.columns, wide=False))
        marks = ", ".join("?" * data.num_columns)
        values = zip(*(column.to_pylist() for column in data.columns), strict=True)
        self._connection._database.executemany(
            f"INSERT INTO {self._dialect.quote('tailrace', table)} VALUES ({marks})", values
        )
        return replace(rows, table=table)

    def commit(self) -> None:
        pass


class SqliteWriter(SqlWriter):
    dialect: ClassVar[Dialect] = SqliteDialect()

    def __init__(self, settings: SqliteSink) -> None:
        super().__init__(settings)
        self._path = settings.path

    @property
    def database(self) -> Any:
        return Database(self._path, not self.dialect.transactional_ddl)

    def check(self) -> None:
        self._ready()

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        return staging.stage(self.dialect, rows, lambda stack: Loader(self, stack))


class CommittingDialect(SqliteDialect):
    """As MySQL: CREATE and ALTER TABLE are not part of a transaction, so tables are prepared before it."""

    transactional_ddl: ClassVar[bool] = False


class CommittingWriter(SqliteWriter):
    dialect: ClassVar[Dialect] = CommittingDialect()
