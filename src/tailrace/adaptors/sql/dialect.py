"""Dialects: what differs between SQL databases.  In statements `t` is the table and `s` the staged rows.

A dialect has three parts: how names and values are written, what the catalog says, and the statements of a merge.
Nothing in it keeps anything; connections are given to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.target import Target, TargetColumn


class Origin(NamedTuple):
    """Where staged rows are: what stands after FROM, the values it needs, and whether all columns are texts."""

    sql: str
    values: Sequence[Any] = ()
    texts: bool = False


class ProbeTable(NamedTuple):
    """A table of the same columns in which values are tried one by one: its name, and how it is made and removed."""

    name: str
    create: str
    drop: str = ""
    """"" if rolling back removes it."""


class Dialect(ABC):
    """One kind of SQL database."""

    system: ClassVar[str]
    """Its name, as people write it."""
    default_schema: ClassVar[str]
    """The schema of a namespace that names none."""
    reserved: ClassVar[frozenset[str]]
    """Schemas that are the database's own."""
    longest_name: ClassVar[int]
    """Bytes of the longest name."""
    wide_columns: ClassVar[int] = 10**9
    """From so many columns on they are staged as one."""
    transactional_ddl: ClassVar[bool] = True
    """Whether CREATE and ALTER TABLE are part of a transaction.  Where each commits by itself, tables are prepared
    before the transaction that merges."""

    for_update: ClassVar[str] = " FOR UPDATE"
    """What makes a SELECT lock its rows until the transaction ends; "" where a transaction that writes is alone."""

    # -- errors of the driver
    @property
    @abstractmethod
    def errors(self) -> tuple[type[BaseException], ...]:
        """All that the driver raises."""

    @property
    @abstractmethod
    def refusals(self) -> tuple[type[BaseException], ...]:
        """Those that are about the data."""

    @property
    @abstractmethod
    def unalterable(self) -> tuple[type[BaseException], ...]:
        """Those of an ALTER TABLE that a view, another object or a missing right stands in the way of."""

    @abstractmethod
    def first_line(self, error: BaseException) -> str:
        """What happened, without the driver's decorations."""

    def detail(self, error: BaseException) -> str:
        """What else the server says of it; "" if nothing."""
        return ""

    def blamed_column(self, error: BaseException) -> str:
        """The column that an error names; "" if none."""
        return ""

    # -- names and values
    @abstractmethod
    def quote(self, *parts: str) -> str:
        """A name, its parts joined by dots."""

    @abstractmethod
    def staged(self, field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
        """A field's values in a form that can be staged."""

    @abstractmethod
    def as_texts(self, array: pa.Array[Any]) -> list[str | None]:
        """Staged values as texts that the server reads."""

    def bad_text(self, text: str) -> str:
        """Why the database cannot hold a text; "" if it can."""
        return ""

    @abstractmethod
    def widens(self, now: str, wanted: str) -> bool:
        """Whether a column of one type can be given another that holds each of its values as it is."""

    @abstractmethod
    def rounds(self, now: str, source: str) -> bool:
        """Whether a column of one type takes values of another, and drops a part of them without an error."""

    @abstractmethod
    def retype(self, column: str, type: str) -> str:
        """The part of an ALTER TABLE that gives a column another type."""

    def create_schema(self, schema: str) -> str:
        """The statement that makes a schema unless it is there; "" where there is nothing to make."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}"

    def column_type(self, connection: SqlConnection, type: str, *, key: bool) -> str:
        """A type as the definition of a column has it; `key`: of one in the primary key."""
        return type

    # -- the catalog
    @abstractmethod
    def find(self, connection: SqlConnection, schema: str, name: str) -> Hashable | None:
        """What tells a table from another of its name; None if there is no table of this name."""

    @abstractmethod
    def columns(self, connection: SqlConnection, file: Any) -> dict[str, TargetColumn]:
        """The columns of a table that was found."""

    @abstractmethod
    def has_unique(self, connection: SqlConnection, file: Any, keys: Sequence[str]) -> bool:
        """Whether a table has a unique index on exactly these columns."""

    def replaced_key(
        self, connection: SqlConnection, to: Target, keys: Sequence[str], filled: Collection[str]
    ) -> list[str]:
        """The parts of an ALTER TABLE that give a table another primary key, if its own has columns that would stay
        without a value when rows have these fields; else none."""
        return []

    @abstractmethod
    def known_types(self, connection: SqlConnection, types: Sequence[str]) -> set[str]:
        """Those of some types that the server has."""

    @abstractmethod
    def missing(self, connection: SqlConnection, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of some tables, by schema and name, that are not there."""

    # -- tailrace's own tables
    @abstractmethod
    def create_state(self, connection: SqlConnection, schema: str) -> None:
        """Make the schema of the state and its tables `offsets` and `tables`; several may do so at once."""

    @abstractmethod
    def staging_tables(self, connection: SqlConnection, schema: str) -> list[tuple[str, int]]:
        """The staging tables, each with the server's time in seconds since 1970."""

    @abstractmethod
    def create_staging(self, schema: str, table: str, columns: Sequence[StagedColumn], *, wide: bool) -> str:
        """The statement that makes a staging table."""

    @abstractmethod
    def insert_absent(self, table: str, values: int) -> str:
        """A statement that inserts a row of so many values, unless its key is there."""

    @abstractmethod
    def replace_values(self, table: str, keys: Sequence[str], others: Sequence[str], rows: int) -> str:
        """A statement that inserts so many rows of values, or replaces what is there under their keys."""

    # -- merging
    @abstractmethod
    def inline(self, columns: Mapping[str, Sequence[Any]], texts: int) -> Origin:
        """Rows that travel with the statement: n, op and unset, and so many columns of texts, c0, c1, …"""

    @abstractmethod
    def value(self, staged: str, kind: str, of: TargetColumn) -> str:
        """A staged value as one of a column's type.  It must not cut a value that is too long."""

    def compared(self, staged: str, kind: str, of: TargetColumn) -> str:
        """A staged value as a column's values are compared with it."""
        return self.value(staged, kind, of)

    @abstractmethod
    def text_of(self, value: str, of: TargetColumn | None = None) -> str:
        """A value as text; `of`: as the column would hold it."""

    @abstractmethod
    def is_unset(self, number: int) -> str:
        """An expression: whether a staged row leaves this column as it is."""

    def staged_column(self, number: int, *, wide: bool) -> str:
        """A staged column."""
        return f"s.rest[{number + 1}]" if wide else f"s.c{number}"

    @abstractmethod
    def insert(self, table: str, where: str, columns: Iterable[str], values: Iterable[str], condition: str) -> str:
        """Inserts staged rows."""

    @abstractmethod
    def upsert(self, insert: str, keys: Sequence[str], others: Sequence[str], absent: Sequence[str] = ()) -> str:
        """An insert that, where the key is there already, sets the other columns and sets those that are absent back to
        their defaults."""

    @abstractmethod
    def update(self, table: str, where: str, sets: Mapping[str, str], condition: str) -> str:
        """Sets columns of rows that staged ones meet."""

    @abstractmethod
    def delete(self, table: str, where: str, condition: str) -> str:
        """Deletes rows that staged ones meet."""

    @abstractmethod
    def delete_equal(self, table: str, where: str, columns: Sequence[tuple[str, str]], condition: str) -> list[str]:
        """Deletes, of a table without a key, as many rows as are staged with equal values; (column, value) each."""

    @abstractmethod
    def begin_merge(self, connection: SqlConnection) -> None:
        """Within the transaction, before anything is merged."""

    @abstractmethod
    def empty(self, connection: SqlConnection, table: str) -> None:
        """Remove all rows of a table within the transaction; nothing if there is none of this name."""

    @abstractmethod
    def drop_tables(self, tables: Iterable[str]) -> str:
        """The statement that removes tables, if they are there."""

    @abstractmethod
    def probe(self, table: str) -> ProbeTable:
        """A table of the same columns."""
