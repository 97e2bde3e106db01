"""The SQL dialect of PostgreSQL, as a sink needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.postgres import errors, names
from tailrace.adaptors.postgres.sink import column_types, widening
from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect, Origin, ProbeTable
from tailrace.adaptors.sql.target import Target, TargetColumn

_SPELLED_ONCE = {"bool", "int2", "int4", "int8", "oid", "uuid", "bytea", "date", "time", "timestamp", "timestamptz"}
_COLUMNS = """
    SELECT a.attname, quote_ident(n.nspname) || '.' || quote_ident(t.typname), b.typname,
           t.typcategory = 'A', a.attgenerated <> '', a.attidentity = 'a', format_type(a.atttypid, a.atttypmod)
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
_STALE = """
    SELECT c.conname, array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
    WHERE c.conrelid = %s AND c.contype = 'p' AND a.attname <> ALL (%s) AND NOT a.atthasdef AND a.attidentity = ''
    GROUP BY c.conname
"""
_FIND = """SELECT c.oid, c.relfilenode FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')"""
_STAGING = """SELECT relname, extract(epoch FROM now())::bigint FROM pg_class
              WHERE relnamespace = to_regnamespace(%s) AND relname ~ '^stage_[0-9a-f]+_[0-9a-f]{32}$'"""


class PostgresDialect(Dialect):
    """PostgreSQL 15 and newer."""

    system: ClassVar[str] = "PostgreSQL"
    default_schema: ClassVar[str] = "public"
    reserved: ClassVar[frozenset[str]] = frozenset({"pg_catalog", "information_schema"})
    longest_name: ClassVar[int] = 63
    wide_columns: ClassVar[int] = 400
    """A row must fit into a block of the server.  An array can be moved out of the block, hundreds of columns
    cannot."""

    # -- errors
    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """All errors that psycopg raises."""
        import psycopg

        return (psycopg.Error,)

    @property
    def refusals(self) -> tuple[type[BaseException], ...]:
        """Errors about values that do not fit, and about constraints."""
        import psycopg

        return psycopg.DataError, psycopg.IntegrityError

    @property
    def unalterable(self) -> tuple[type[BaseException], ...]:
        """Errors because a view needs the column, or because another role owns the table."""
        import psycopg

        return psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege

    def first_line(self, error: BaseException) -> str:
        """What happened, without the driver's decorations."""
        return errors.first_line(error)

    def detail(self, error: BaseException) -> str:
        """The DETAIL that the server sent with an error."""
        return _diag(error, "message_detail")

    def blamed_column(self, error: BaseException) -> str:
        """The column that the server names in an error."""
        return _diag(error, "column_name")

    # -- names and values
    def quote(self, *parts: str) -> str:
        """A name, quoted, with its parts joined by dots."""
        return names.quote(*parts)

    def staged(self, field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
        """Return the staged column of a field, and its values in staged form."""
        return column_types.staged(field, array)

    def as_texts(self, array: pa.Array[Any]) -> list[str | None]:
        """Staged values as texts that the server can read."""
        return column_types.as_texts(array)

    def bad_text(self, text: str) -> str:
        """Why PostgreSQL cannot hold a text: it has a zero character."""
        return "no text of PostgreSQL has the character 0x00" if "\0" in text else ""

    def widens(self, now: str, wanted: str) -> bool:
        """See widening."""
        return widening.widens(now, wanted)

    def rounds(self, now: str, source: str) -> bool:
        """See widening."""
        return widening.rounds(now, source)

    def retype(self, column: str, type: str) -> str:
        """The part of an ALTER TABLE that gives a column another type."""
        return f"ALTER COLUMN {names.quote(column)} TYPE {type}"

    # -- the catalog
    def find(self, connection: SqlConnection, schema: str, name: str) -> tuple[int, int] | None:
        """The table's oid and the number of its file.  The file's number changes when the table is emptied by TRUNCATE
        or rewritten."""
        row = connection.execute(_FIND, [schema, name]).fetchone()
        return (row[0], row[1]) if row else None

    def columns(self, connection: SqlConnection, file: Any) -> dict[str, TargetColumn]:
        """The columns of a table."""
        found = connection.execute(_COLUMNS, [file[0]]).fetchall()
        return {row[0]: _column(*row[1:]) for row in found}

    def has_unique(self, connection: SqlConnection, file: Any, keys: Sequence[str]) -> bool:
        """Whether a table has a unique index on exactly these columns."""
        row = connection.execute(_UNIQUE, [file[0], sorted(keys)]).fetchone()
        return bool(row and row[0])

    def replaced_key(
        self, connection: SqlConnection, to: Target, keys: Sequence[str], filled: Collection[str]
    ) -> list[str]:
        """The parts of an ALTER TABLE that replace the primary key, if its own key has a column that no row fills any
        more."""
        file: Any = to.file
        row = connection.execute(_STALE, [file[0], list(filled)]).fetchone()
        if row is None:
            return []
        nullable = [f"ALTER COLUMN {names.quote(column)} DROP NOT NULL" for column in row[1]]
        key = ", ".join(map(names.quote, keys))
        return [f"DROP CONSTRAINT {names.quote(row[0])}", *nullable, f"ADD PRIMARY KEY ({key})"]

    def known_types(self, connection: SqlConnection, types: Sequence[str]) -> set[str]:
        """The types among these that the server has."""
        sql = "SELECT type FROM unnest(%s::text[]) AS t(type) WHERE to_regtype(type) IS NOT NULL"
        return {type for (type,) in connection.execute(sql, [list(types)]).fetchall()}

    def missing(self, connection: SqlConnection, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """The tables among these that the database does not have."""
        by_name = {names.quote(*table): table for table in tables}
        sql = "SELECT q FROM unnest(%s::text[]) AS t(q) WHERE to_regclass(q) IS NULL"
        return {by_name[q] for (q,) in connection.execute(sql, [list(by_name)]).fetchall()}

    # -- tailrace's own tables
    def create_state(self, connection: SqlConnection, schema: str) -> None:
        """Create the schema and the tables of the state."""
        import psycopg

        offsets = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "offsets")} (
            pipeline text, writer text, epoch bigint NOT NULL, offsets jsonb, claimed boolean NOT NULL,
            changed_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, writer))"""
        tables = f"""CREATE TABLE IF NOT EXISTS {names.quote(schema, "tables")} (
            pipeline text, writer text, namespace text, schema text NOT NULL, name text NOT NULL,
            filled boolean NOT NULL, PRIMARY KEY (pipeline, writer, namespace))"""
        for sql in (f"CREATE SCHEMA IF NOT EXISTS {names.quote(schema)}", offsets, tables):
            try:
                connection.execute(sql)
            except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateTable, psycopg.errors.DuplicateSchema):
                continue  # another writer made it at the same moment

    def staging_tables(self, connection: SqlConnection, schema: str) -> list[tuple[str, int]]:
        """The names of the staging tables, each with the server's present time."""
        return [(table, now) for table, now in connection.execute(_STAGING, [names.quote(schema)]).fetchall()]

    def create_staging(self, schema: str, table: str, columns: Sequence[StagedColumn], *, wide: bool) -> str:
        """The statement that creates an unlogged table: after a crash of the server the batch is staged again."""
        kinds = [f"c{n} {column_types.STAGING.get(column.kind, column.kind)}" for n, column in enumerate(columns)]
        inner = ", ".join(["n int8", "op int2", "unset bytea", *(["rest text[]"] if wide else kinds)])
        return f"CREATE UNLOGGED TABLE {names.quote(schema, table)} ({inner}) WITH (autovacuum_enabled = false)"

    def insert_absent(self, table: str, values: int) -> str:
        """The statement that inserts a row unless its key exists."""
        return f"INSERT INTO {table} VALUES ({_marks(values)}) ON CONFLICT DO NOTHING"

    def replace_values(self, table: str, keys: Sequence[str], others: Sequence[str], rows: int) -> str:
        """The statement that inserts rows, or replaces the rows with their keys."""
        values = ", ".join(f"({_marks(len(keys) + len(others))})" for _ in range(rows))
        sets = ", ".join(f"{names.quote(name)} = excluded.{names.quote(name)}" for name in others)
        into = ", ".join(map(names.quote, (*keys, *others)))
        on = ", ".join(map(names.quote, keys))
        return f"INSERT INTO {table} ({into}) VALUES {values} ON CONFLICT ({on}) DO UPDATE SET {sets}"

    # -- merging
    def inline(self, columns: Mapping[str, Sequence[Any]], texts: int) -> Origin:
        """Staged rows as arrays, one for each column."""
        types = ["int8", "int2", "bytea", *("text" for _ in range(texts))]
        arrays = ", ".join(f"%s::{type}[]" for type in types)
        return Origin(f"unnest({arrays}) AS s({', '.join(columns)})", [list(some) for some in columns.values()], True)

    def value(self, staged: str, kind: str, of: TargetColumn) -> str:
        """The expression that casts a staged value to a column's type, without the type's modifiers: an explicit cast
        to varchar(3) would cut the value.  Values of other types go through their text, as rows that go with the
        statement do: so a value becomes the same either way, and a row without a key is found again."""
        kind = "bytea" if kind == "bytes" else kind
        if kind == of.kind != "json" and of.type.startswith("pg_catalog."):
            return staged
        if kind == "json" and of.array:
            inner = f"ARRAY(SELECT pg_catalog.jsonb_array_elements_text({staged}::pg_catalog.jsonb))"
            return f"CASE WHEN {staged} IS NOT NULL THEN {inner}::{of.type} END"
        if kind in ("text", "json"):
            return f"{staged}::{of.type}"
        return f"{staged}::text::{of.type}"

    def text_of(self, value: str, of: TargetColumn | None = None) -> str:
        """The expression for a value as text."""
        return f"{value}::text" if of is None else f"({value})::{of.exact}::text"

    def is_unset(self, number: int) -> str:
        """The condition that the bitmap has the bit with this number."""
        return f"pg_catalog.get_bit(s.unset, {number}) = 1"

    def insert(self, table: str, where: str, columns: Iterable[str], values: Iterable[str], condition: str) -> str:
        """The statement that inserts staged rows."""
        into = f"INSERT INTO {table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE"
        return f"{into} SELECT {', '.join(values)} FROM {where} WHERE {condition}"

    def upsert(self, insert: str, keys: Sequence[str], others: Sequence[str], absent: Sequence[str] = ()) -> str:
        """Extend an insert so that it updates the row if the key exists."""
        sets = ", ".join([*(f"{name} = excluded.{name}" for name in others), *(f"{name} = DEFAULT" for name in absent)])
        return f"{insert} ON CONFLICT ({', '.join(keys)}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")

    def update(self, table: str, where: str, sets: Mapping[str, str], condition: str) -> str:
        """The statement that sets columns of the rows that staged rows match."""
        assigned = ", ".join(f"{name} = {value}" for name, value in sets.items())
        return f"UPDATE {table} t SET {assigned} FROM {where} WHERE {condition}"

    def delete(self, table: str, where: str, condition: str) -> str:
        """The statement that deletes the rows that staged rows match."""
        return f"DELETE FROM {table} t USING {where} WHERE {condition}"

    def delete_equal(
        self, table: str, where: str, columns: Sequence[tuple[str, str, TargetColumn]], condition: str
    ) -> list[str]:
        """The statement that deletes rows without a key.  It compares all their values as one text, because every type
        has a text form, and texts can be hashed."""
        mine = ", ".join(value for _, value, _ in columns)
        theirs = ", ".join(f"t.{name}" for name, _, _ in columns)
        return [
            f"""
            WITH gone AS (SELECT ROW({mine})::text AS text, count(*) AS many FROM {where}
                          WHERE {condition} GROUP BY 1),
            found AS (SELECT t.tableoid AS o, t.ctid AS c, g.many, row_number() OVER (PARTITION BY g.text) AS n
                      FROM {table} t JOIN gone g ON g.text = ROW({theirs})::text)
            DELETE FROM {table} t USING found f WHERE t.tableoid = f.o AND t.ctid = f.c AND f.n <= f.many"""
        ]

    def begin_merge(self, connection: SqlConnection) -> None:
        """Defer the constraints that are deferrable: the rows of one source transaction arrive in another order."""
        connection.execute("SET CONSTRAINTS ALL DEFERRED")

    def empty(self, connection: SqlConnection, table: str) -> None:
        """Empty a table by TRUNCATE, or by DELETE where TRUNCATE is not allowed."""
        import psycopg

        try:
            with connection.transaction():
                connection.execute(f"TRUNCATE TABLE {table}")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported):
            connection.execute(f"DELETE FROM {table}")

    def drop_tables(self, tables: Iterable[str]) -> str:
        """The statement that drops those of the tables that exist."""
        return f"DROP TABLE IF EXISTS {', '.join(tables)}"

    def probe(self, table: str) -> ProbeTable:
        """A temporary table, which a rollback removes."""
        create = f"CREATE TEMP TABLE tailrace_probe ON COMMIT DROP AS SELECT * FROM {table} WITH NO DATA"
        return ProbeTable("pg_temp.tailrace_probe", create)


def _column(type: str, kind: str, array: bool, generated: bool, always: bool, exact: str) -> TargetColumn:
    return TargetColumn(type, kind, array, generated, always, exact, kind in _SPELLED_ONCE)


def _marks(count: int) -> str:
    return ", ".join(["%s"] * count)


def _diag(error: BaseException, name: str) -> str:
    return getattr(getattr(error, "diag", None), name, None) or ""
