"""DDL: creates the table of a namespace, adds columns to it and widens columns, where the settings allow it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tailrace.adaptors.sinks import missing_targets
from tailrace.adaptors.sql import names
from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import StagedRows
from tailrace.adaptors.sql.target import SqlSettings, Target
from tailrace.errors import NotReady

_log = logging.getLogger("tailrace")


def table_of(dialect: Dialect, settings: SqlSettings, namespace: str) -> tuple[str, str]:
    """Return the schema and table that a namespace is written to.  Raises `NotReady` if the name is too long, or if the
    schema is tailrace's or the database's own."""
    schema, name = names.parts(namespace, dialect.default_schema)
    schema = settings.schema or schema
    if dialect.is_too_long(schema) or dialect.is_too_long(name):
        raise NotReady(f"{namespace}: {_longest(dialect)}; move it on its way: remap({{…}})")
    if schema == settings.state or schema in dialect.reserved:
        raise NotReady(
            f"{namespace} would be written into the schema {schema!r}, which is tailrace's or {dialect.system}'s own; "
            "move it on its way: remap({…}), leave it out by the branch's namespace, or give tailrace another one: "
            "state='…'"
        )
    return schema, name


def _longest(dialect: Dialect) -> str:
    return f"{dialect.system}'s names have at most {dialect.longest_name} {dialect.name_unit}"


class Tables:
    """Prepares the tables of one sink."""

    def __init__(self, dialect: Dialect, settings: SqlSettings) -> None:
        self._dialect, self._settings = dialect, settings
        self._refused: set[str] = set()
        """Statements that would have widened columns and failed; they are not tried again."""

    def prepare(self, connection: SqlConnection, rows: StagedRows) -> Target:
        """Return the table for staged rows, with a column for each of their fields.

        Creates and alters the table as the settings allow; raises `NotReady` with the statement to run if they do
        not."""
        dialect = self._dialect
        schema, name = table_of(dialect, self._settings, rows.namespace)
        file = dialect.find(connection, schema, name)
        if file is None:
            self._create(connection, schema, rows, self.create_sql(connection, schema, name, rows))
            file = dialect.find(connection, schema, name)
        if file is None:
            raise NotReady(
                f"{rows.namespace}: {dialect.quote(schema, name)} of the sink is not a table; drop or rename it, or "
                "write into another schema: schema = '…'"
            )
        target = self._read(connection, file, schema, name, rows.keys)
        missing = [column for column in rows.columns if column.name not in target.columns]
        if missing:
            self._add(connection, target, missing, rows)
            file = dialect.find(connection, schema, name) or file
            target = self._read(connection, file, schema, name, rows.keys)
        if self._settings.alter and self._widened(connection, target, rows):
            file = dialect.find(connection, schema, name) or file
            target = self._read(connection, file, schema, name, rows.keys)
        return target

    def _read(self, connection: SqlConnection, file: Any, schema: str, name: str, keys: Sequence[str]) -> Target:
        unique = self._dialect.has_unique(connection, file, keys)
        columns = self._dialect.columns(connection, file)
        return Target(schema, name, self._dialect.quote(schema, name), unique, file, columns)

    def _create(self, connection: SqlConnection, schema: str, rows: StagedRows, sql: str) -> None:
        self._check_names(rows.columns, rows)
        first = self._dialect.create_schema(schema)
        if not self._settings.create:
            told = [first, sql] if schema != self._dialect.default_schema else [sql]
            raise missing_targets.not_made(rows.namespace, "table", " ".join(f"{order};" for order in told if order))
        for order in filter(None, (first, sql)):
            connection.execute(order)

    def _check_names(self, columns: Sequence[StagedColumn], rows: StagedRows) -> None:
        """Raise `NotReady` for a column whose name is too long: cut, it would be missing after it was added."""
        for column in columns:
            if self._dialect.is_too_long(column.name):
                told = f"{rows.namespace}: column {column.name}: {_longest(self._dialect)}"
                raise NotReady(f"{told}; rename it on its way: rename({{…}})")

    def _add(
        self, connection: SqlConnection, target: Target, missing: Sequence[StagedColumn], rows: StagedRows
    ) -> None:
        """Add columns.  If some belong to the key, which the source has renamed, also replace the primary key."""
        self._check_names(missing, rows)
        parts = [f"ADD COLUMN {column}" for column in self._columns(connection, missing, rows.keys)]
        if any(column.name in rows.keys for column in missing):
            filled = [column.name for column in rows.columns]
            parts += self._dialect.replaced_key(connection, target, rows.keys, filled)
        sql = f"ALTER TABLE {target.sql} {', '.join(parts)}"
        if not self._settings.alter:
            raise missing_targets.lacks_fields(target.sql, "table", [column.name for column in missing], f"{sql};")
        connection.execute(sql)

    def _widened(self, connection: SqlConnection, target: Target, rows: StagedRows) -> bool:
        """Give columns the wider types that they have in the source, where that loses nothing.  Returns whether a
        column was changed."""
        dialect = self._dialect
        narrow = [one for one in rows.columns if dialect.widens(target.columns[one.name].exact, one.declared)]
        narrow = [one for one in narrow if not target.columns[one.name].generated]
        if not narrow:
            return False
        sql = f"ALTER TABLE {target.sql} {', '.join(dialect.retype(one.name, one.declared) for one in narrow)}"
        if sql in self._refused:
            return False
        try:
            with connection.transaction():
                connection.execute(sql)
        except dialect.unalterable as error:
            # A view may depend on the column, or another role may own the table.  Go on: most values fit nevertheless.
            self._refused.add(sql)
            why = dialect.first_line(error)
            told = "%s: what does not fit stops the writer; it cannot be widened (%s): %s"
            _log.warning(told, rows.namespace, why, sql)
            return False
        _log.warning("%s: widened, as at the source: %s", rows.namespace, sql)
        return True

    def narrower(self, target: Target, rows: StagedRows) -> dict[str, str]:
        """The columns that silently cut or round the source's values, each with a warning for the log."""
        told = {}
        for one in rows.columns:
            source, here = one.declared or one.types[0], target.columns[one.name].exact
            if self._dialect.rounds(here, source):
                given = f"is {source} at the source" if one.declared else f"comes as {source}"
                told[one.name] = (
                    f"{rows.namespace}: column {one.name} {given} and {here} here, so values that do not fit are cut "
                    f"or rounded; ALTER TABLE {target.sql} {self._dialect.retype(one.name, source)}"
                )
        return told

    def create_sql(self, connection: SqlConnection, schema: str, name: str, rows: StagedRows) -> str:
        """Return the statement that creates a table for these rows."""
        parts = self._columns(connection, rows.columns, rows.keys)
        parts += [f"PRIMARY KEY ({', '.join(map(self._dialect.quote, rows.keys))})"] if rows.keys else []
        return f"CREATE TABLE IF NOT EXISTS {self._dialect.quote(schema, name)} ({', '.join(parts)})"

    def _columns(
        self, connection: SqlConnection, columns: Sequence[StagedColumn], keys: Sequence[str] = ()
    ) -> list[str]:
        """The definitions of columns, each with the first of its types that the server knows."""
        known = self._dialect.known_types(connection, sorted({type for column in columns for type in column.types}))
        chosen = [next((type for type in column.types if type in known), "text") for column in columns]
        types = {
            column.name: self._dialect.column_type(connection, type, keys=len(keys) if column.name in keys else 0)
            for column, type in zip(columns, chosen, strict=True)
        }
        return [f"{self._dialect.quote(name)} {type}" for name, type in types.items()]
