"""Dialects: what differs between SQL databases.  In statements `t` is the table and `s` the staged rows.

A dialect has three parts: how names and values are written, what the catalog says, and the statements of a merge.  A
dialect has no state; the caller passes the connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow as pa

from tailrace.adaptors.sql.columns import StagedColumn
from tailrace.adaptors.sql.connection import SqlConnection
from tailrace.adaptors.sql.target import Target, TargetColumn


class Origin(NamedTuple):
    """Where staged rows are: what stands after FROM, the parameters that it needs, and whether all columns are
    texts."""

    sql: str
    values: Sequence[Any] = ()
    texts: bool = False


class ProbeTable(NamedTuple):
    """A table with the same columns as the target, in which values are tried one by one: its name, and the statements
    that create and drop it."""

    name: str
    create: str
    drop: str = ""
    """"" if a rollback removes the table."""


class Dialect(ABC):
    """One kind of SQL database."""

    system: ClassVar[str]
    """The name of the database system in messages."""
    default_schema: ClassVar[str]
    """The schema of a namespace that does not name one."""
    reserved: ClassVar[frozenset[str]]
    """The schemas of the database itself."""
    longest_name: ClassVar[int]
    """The most bytes or characters that a name can have."""
    name_unit: ClassVar[Literal["bytes", "characters"]] = "bytes"
    """What `longest_name` counts."""
    wide_columns: ClassVar[int] = 10**9
    """A table with at least this many columns is staged with all of them in one column."""
    transactional_ddl: ClassVar[bool] = True
    """Whether CREATE and ALTER TABLE are part of a transaction.  If each commits by itself, the writer prepares tables
    before the transaction that merges."""

    for_update: ClassVar[str] = " FOR UPDATE"
    """What makes a SELECT lock its rows until the transaction ends; "" if only one transaction at a time can write."""

    # -- errors of the driver
    @property
    @abstractmethod
    def errors(self) -> tuple[type[BaseException], ...]:
        """All errors that the driver raises."""

    @property
    @abstractmethod
    def refusals(self) -> tuple[type[BaseException], ...]:
        """The errors that are about the data."""

    @property
    @abstractmethod
    def unalterable(self) -> tuple[type[BaseException], ...]:
        """The errors of an ALTER TABLE that fails because of a view, another object or a missing right."""

    @abstractmethod
    def first_line(self, error: BaseException) -> str:
        """What happened, without the driver's decorations."""

    def detail(self, error: BaseException) -> str:
        """What the server adds to an error; "" if nothing."""
        return ""

    def blamed_column(self, error: BaseException) -> str:
        """The column that an error names; "" if none."""
        return ""

    # -- names and values
    @abstractmethod
    def quote(self, *parts: str) -> str:
        """A name, quoted, with its parts joined by dots."""

    @abstractmethod
    def staged(self, field: pa.Field[Any], array: pa.Array[Any]) -> tuple[StagedColumn, pa.Array[Any]]:
        """Return the staged column of a field, and its values in staged form."""

    @abstractmethod
    def as_texts(self, array: pa.Array[Any]) -> list[str | None]:
        """Staged values as texts that the server can read."""

    def bad_text(self, text: str) -> str:
        """Why the database cannot hold a text; "" if it can."""
        return ""

    @abstractmethod
    def widens(self, now: str, wanted: str) -> bool:
        """Whether a column can change from type `now` to type `wanted`, which holds each value of `now` unchanged."""

    @abstractmethod
    def rounds(self, now: str, source: str) -> bool:
        """Whether a column of type `now` takes values of type `source` but silently drops a part of some."""

    @abstractmethod
    def retype(self, column: str, type: str) -> str:
        """The part of an ALTER TABLE that gives a column another type."""

    def is_too_long(self, name: str) -> bool:
        """Whether the database would cut or refuse a name.  Two names that it cuts may become one."""
        return len(name.encode() if self.name_unit == "bytes" else name) > self.longest_name

    def create_schema(self, schema: str) -> str:
        """The statement that creates a schema if it is missing; "" if the database needs none."""
        return f"CREATE SCHEMA IF NOT EXISTS {self.quote(schema)}"

    def column_type(self, connection: SqlConnection, type: str, *, keys: int) -> str:
        """A type as a column definition names it.  `keys`: how many columns the primary key has that this one is in;
        0 for a column that is in none."""
        return type

    # -- the catalog
    @abstractmethod
    def find(self, connection: SqlConnection, schema: str, name: str) -> Hashable | None:
        """A value that identifies the table with this name, and changes when the table is made again; None if there is
        no table."""

    @abstractmethod
    def columns(self, connection: SqlConnection, file: Any) -> dict[str, TargetColumn]:
        """The columns of a table that `find` has found."""

    @abstractmethod
    def has_unique(self, connection: SqlConnection, file: Any, keys: Sequence[str]) -> bool:
        """Whether a table has a unique index on exactly these columns."""

    def replaced_key(
        self, connection: SqlConnection, to: Target, keys: Sequence[str], filled: Collection[str]
    ) -> list[str]:
        """The parts of an ALTER TABLE that replace the primary key, if its own key has columns that rows with the
        fields `filled` would leave without a value; otherwise none."""
        return []

    @abstractmethod
    def known_types(self, connection: SqlConnection, types: Sequence[str]) -> set[str]:
        """The types among these that the server has."""

    @abstractmethod
    def missing(self, connection: SqlConnection, tables: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """The tables among these, given by schema and name, that the database does not have."""

    # -- tailrace's own tables
    @abstractmethod
    def create_state(self, connection: SqlConnection, schema: str) -> None:
        """Create the schema of the state and its tables `offsets` and `tables`.  Several writers may do so at once."""

    @abstractmethod
    def staging_tables(self, connection: SqlConnection, schema: str) -> list[tuple[str, int]]:
        """The names of the staging tables, each with the server's present time in seconds since 1970."""

    @abstractmethod
    def create_staging(self, schema: str, table: str, columns: Sequence[StagedColumn], *, wide: bool) -> str:
        """The statement that creates a staging table.  `wide`: all columns are staged in one."""

    @abstractmethod
    def insert_absent(self, table: str, values: int) -> str:
        """The statement that inserts a row of `values` parameters unless its key exists."""

    @abstractmethod
    def replace_values(self, table: str, keys: Sequence[str], others: Sequence[str], rows: int) -> str:
        """The statement that inserts `rows` rows of parameters, or replaces the rows with their keys."""

    # -- merging
    @abstractmethod
    def inline(self, columns: Mapping[str, Sequence[Any]], texts: int) -> Origin:
        """Staged rows that travel with the statement: columns n, op and unset, and `texts` columns of texts, c0, c1,
        …"""

    @abstractmethod
    def value(self, staged: str, kind: str, of: TargetColumn) -> str:
        """The expression that turns a staged value into the type of a column.  It must not cut a value that is too
        long."""

    def compared(self, staged: str, kind: str, of: TargetColumn) -> str:
        """The expression for a staged value that a column's values are compared with."""
        return self.value(staged, kind, of)

    @abstractmethod
    def text_of(self, value: str, of: TargetColumn | None = None) -> str:
        """The expression for a value as text.  With `of`, the text is the one that this column would hold."""

    def confuses(self, of: TargetColumn) -> bool:
        """Whether a key column takes texts for equal that other systems tell apart, such as "a" and "A"."""
        return False

    @abstractmethod
    def is_unset(self, number: int) -> str:
        """The condition that a staged row leaves the column with this number as it is."""

    def staged_column(self, number: int, *, wide: bool) -> str:
        """The expression for a staged column."""
        return f"s.rest[{number + 1}]" if wide else f"s.c{number}"

    @abstractmethod
    def insert(self, table: str, where: str, columns: Iterable[str], values: Iterable[str], condition: str) -> str:
        """The statement that inserts staged rows."""

    @abstractmethod
    def upsert(self, insert: str, keys: Sequence[str], others: Sequence[str], absent: Sequence[str] = ()) -> str:
        """Extend an insert so that, where the key exists, it sets the columns `others`, and sets the columns `absent`
        back to their defaults."""

    @abstractmethod
    def update(self, table: str, where: str, sets: Mapping[str, str], condition: str) -> str:
        """The statement that sets columns of the rows that staged rows match."""

    @abstractmethod
    def delete(self, table: str, where: str, condition: str) -> str:
        """The statement that deletes the rows that staged rows match."""

    @abstractmethod
    def delete_equal(
        self, table: str, where: str, columns: Sequence[tuple[str, str, TargetColumn]], condition: str
    ) -> list[str]:
        """The statements that delete from a table without a key as many rows as are staged with equal values.
        `columns` has each column's name, the staged value, and the column as the catalog describes it."""

    @abstractmethod
    def begin_merge(self, connection: SqlConnection) -> None:
        """Prepare the transaction, before anything is merged."""

    @abstractmethod
    def empty(self, connection: SqlConnection, table: str) -> None:
        """Remove all rows of a table within the transaction; do nothing if there is no such table."""

    @abstractmethod
    def drop_tables(self, tables: Iterable[str]) -> str:
        """The statement that drops those of the tables that exist."""

    @abstractmethod
    def probe(self, table: str) -> ProbeTable:
        """A table with the same columns, for trying values."""
