"""Merging: the statements that merge staged rows into their table.  Nothing here talks to a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.adaptors.sql.dialect import Dialect, Origin
from tailrace.adaptors.sql.staged_rows import StagedRows
from tailrace.adaptors.sql.target import Target
from tailrace.errors import Rejected
from tailrace.log.record import Op


@dataclass(frozen=True, slots=True)
class MergeColumn:
    """A column that staged rows and their table have."""

    name: str
    sql: str
    """The column's name in SQL."""
    value: str
    """The expression for the staged value as it is written into the column."""
    compared: str
    """The expression for the staged value as the column's values are compared with it."""
    number: int
    key: bool
    settable: bool
    spelled: str = ""
    """The expression for the staged value as the text that the column would hold; "" if equal values are always written
    alike."""


class Merge:
    """The merge of one set of staged rows into a table."""

    def __init__(self, dialect: Dialect, rows: StagedRows, target: Target, state: str) -> None:
        self.dialect, self.rows, self.target = dialect, rows, target
        self.origin = _origin(dialect, rows, state)

    @cached_property
    def columns(self) -> list[MergeColumn]:
        """The columns to write: all but those that the table generates itself."""
        out = []
        for n, column in enumerate(self.rows.columns):
            of = self.target.columns[column.name]
            if of.generated:
                continue
            as_text = (self.rows.wide or self.origin.texts) and column.kind != "json"
            kind = "text" if as_text else column.kind
            made = self.dialect.value(self.staged(n), kind, of)
            compared = self.dialect.compared(self.staged(n), kind, of)
            spelled = "" if of.spelled_once else self.dialect.text_of(made, of)
            is_key = column.name in self.rows.keys
            name = self.dialect.quote(column.name)
            out.append(MergeColumn(column.name, name, made, compared, n, is_key, not of.always, spelled))
        return out

    def staged(self, number: int) -> str:
        """The expression for a staged column."""
        return self.dialect.staged_column(number, wide=self.rows.wide and not self.origin.texts)

    def statements(self, span: tuple[int, int] | None = None) -> Iterator[str]:
        """Yield the statements that merge the rows, or only the rows whose numbers are in `span`."""
        rows, dialect, table, where = self.rows, self.dialect, self.target.sql, self.origin.sql
        within = f" AND s.n >= {span[0]} AND s.n < {span[1]}" if span else ""
        if not rows.keys:
            yield from self._without_key(within)
            return
        keys = [column for column in self.columns if column.key]
        same = self._same
        if rows.deletes:
            # When an id changes from 1.0 to 1.00, the source sends a delete and an insert.  In either order, the delete
            # must not remove the row of the insert.
            alike = "".join(f" AND {dialect.text_of(f't.{key.sql}')} = {key.spelled}" for key in keys if key.spelled)
            yield dialect.delete(table, where, f"s.op = {Op.DELETE}{within} AND {same}{alike}")
        if rows.partial and (sets := self._partial()):
            yield dialect.update(table, where, sets, f"s.unset IS NOT NULL{within} AND {same}")
        if rows.upserts:
            whole = f"s.op <> {Op.DELETE} AND s.unset IS NULL{within}"
            if not self.target.unique:
                yield dialect.delete(table, where, f"{whole} AND {same}")
            insert = self._insert(whole)
            yield self._upsert(insert, keys) if self.target.unique else insert

    @property
    def _same(self) -> str:
        return " AND ".join(f"t.{column.sql} = {column.compared}" for column in self.columns if column.key)

    def plain(self) -> str | None:
        """A plain insert for rows of a copy, which costs half as much and works only if the table has none of their
        ids.  None if it must not be tried."""
        rows = self.rows
        if not (rows.copied and rows.table and rows.keys and self.target.unique and rows.upserts == rows.rows):
            return None
        return self._insert("1 = 1")

    def overlap(self) -> str:
        """The query that tells whether the table has rows with the ids of the staged rows."""
        table, where = self.target.sql, self.origin.sql
        some = f"EXISTS (SELECT 1 FROM {table})"
        return f"SELECT {some} AND EXISTS (SELECT 1 FROM {where}, {table} t WHERE {self._same})"

    def confused(self) -> str:
        """The query for two ids of which the table can hold only one: a staged row's, and that of the row in the table
        that the key takes for equal.  "" if its key tells all ids apart."""
        keys = [column for column in self.columns if column.key]
        telling = [key for key in keys if self.dialect.confuses(self.target.columns[key.name])]
        if not telling or not self.target.unique or not self.rows.upserts:
            return ""
        mine = [key.spelled or self.dialect.text_of(key.value) for key in keys]
        theirs = [self.dialect.text_of(f"t.{key.sql}") for key in keys]
        alike = " AND ".join(f"{self.dialect.text_of(f't.{key.sql}')} = {key.spelled}" for key in telling)
        whole = f"s.op <> {Op.DELETE} AND s.unset IS NULL"
        return (
            f"SELECT {', '.join([*mine, *theirs])} FROM {self.origin.sql}, {self.target.sql} t "
            f"WHERE {whole} AND {self._same} AND NOT ({alike}) LIMIT 1"
        )

    def bound(self, sql: str) -> tuple[str, Sequence[Any] | None]:
        """Return a statement and its parameters for the driver.  With parameters, percent signs in names are written
        twice."""
        where = self.origin
        if not where.values or where.sql not in sql:
            return sql, None
        return where.sql.join(part.replace("%", "%%") for part in sql.split(where.sql)), where.values

    def _insert(self, condition: str) -> str:
        names, values = [c.sql for c in self.columns], [c.value for c in self.columns]
        return self.dialect.insert(self.target.sql, self.origin.sql, names, values, condition)

    def _upsert(self, insert: str, keys: Sequence[MergeColumn]) -> str:
        others = [c.sql for c in self.columns if c.settable and (c.spelled or not c.key)]
        return self.dialect.upsert(insert, [key.sql for key in keys], others, self._absent())

    def _absent(self) -> list[str]:
        """The columns of the table that the staged whole documents do not have."""
        if not self.rows.open:
            return []
        had = {column.name for column in self.rows.columns}
        free = (name for name, of in self.target.columns.items() if not (name in had or of.generated or of.always))
        return [self.dialect.quote(name) for name in free]

    def _partial(self) -> dict[str, str]:
        """For each column, the value that a change of single fields sets it to."""
        return {
            c.sql: f"CASE WHEN {self.dialect.is_unset(c.number)} THEN t.{c.sql} ELSE {c.value} END"
            for c in self.columns
            if c.settable and not c.key
        }

    def _without_key(self, within: str) -> Iterator[str]:
        """Yield the statements for a table without a key, in which rows are found by all their values."""
        if self.rows.deletes:
            columns = [(column.sql, column.value, self.target.columns[column.name]) for column in self.columns]
            condition = f"s.op = {Op.DELETE}{within}"
            yield from self.dialect.delete_equal(self.target.sql, self.origin.sql, columns, condition)
        if self.rows.upserts:
            yield self._insert(f"s.op <> {Op.DELETE}{within}")


def _origin(dialect: Dialect, rows: StagedRows, state: str) -> Origin:
    """Where staged rows are, under the name s."""
    if rows.table:
        return Origin(f"{dialect.quote(state, rows.table)} s")
    batch = pa.ipc.open_stream(rows.data).read_next_batch()
    if rows.wide:
        lists = batch.column("rest").to_pylist()
        texts = [[row[n] for row in lists] for n in range(len(rows.columns))]
    else:
        texts = [dialect.as_texts(batch.column(f"c{n}")) for n in range(len(rows.columns))]
    _check_texts(dialect, rows, texts)
    first = {name: batch.column(name).to_pylist() for name in ("n", "op", "unset")}
    return dialect.inline({**first, **{f"c{n}": values for n, values in enumerate(texts)}}, len(texts))


def _check_texts(dialect: Dialect, rows: StagedRows, texts: list[list[str | None]]) -> None:
    """Raise `Rejected` for a text that the database cannot hold; the driver's own error would not name the column and
    row."""
    for column, values in zip(rows.columns, texts, strict=True):
        for n, value in enumerate(values):
            if value is not None and (why := dialect.bad_text(value)):
                id = "\x1f".join(str(texts[k][n]) for k in rows.id_columns)
                raise Rejected(
                    f"{rows.namespace}: column {column.name}, id {id}: {why}", namespace=rows.namespace, id=id
                )
