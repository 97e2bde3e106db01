"""Copying: reads a table in pieces of neighbouring blocks, each through ADBC in a snapshot of its own.

Pieces are ranges of blocks (ctid), not of keys.  Ranges of blocks need no key and no statistics, have equally many rows
however the keys are distributed, and are read in the order they have on disk, where a range of random keys would visit
nearly every block.  If an update moves a row from one piece to another between their snapshots, both may miss it.  The
log has the change, and the follower reads from the table what the change leaves out (see missing_fields).  A command
that moves all rows without a change in the log, such as VACUUM FULL, gives the table another file; the table is then
copied again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.catalog import Leaf, Table
from tailrace.adaptors.postgres.database import Database
from tailrace.adaptors.postgres.types import typed
from tailrace.adaptors.rows.typed_rows import build_rows
from tailrace.log.record import Mode, Op

if TYPE_CHECKING:
    pass

BATCH_ROWS = 50_000

Part = tuple[int, int, int | None]
"""The oid of a leaf, its first block, and the block after the last; None: to the end, however far it has moved."""


def cut(leaves: Sequence[Leaf], rows: int) -> list[tuple[list[Part], int]]:
    """Cut the leaves of a table into groups of parts of about `rows` rows, each with its estimate.  Small leaves share
    a group; a large leaf is cut."""
    out: list[tuple[list[Part], int]] = []
    held: list[Part] = []
    count = 0
    for leaf in leaves:
        if leaf.rows > rows:
            out += _blocks(leaf, rows)
            continue
        if held and count + leaf.rows > rows:
            out.append((held, count))
            held, count = [], 0
        held.append((leaf.oid, 0, None))
        count += leaf.rows
    return [*out, (held, count)] if held or not out else out


def _blocks(leaf: Leaf, rows: int) -> list[tuple[list[Part], int]]:
    pieces = max(1, min(leaf.blocks, -(-leaf.rows // rows)))
    edges = [leaf.blocks * n // pieces for n in range(pieces)]
    ends: list[int | None] = [*edges[1:], None]
    return [([(leaf.oid, a, b)], leaf.rows // pieces) for a, b in zip(edges, ends, strict=True)]


def pieces(namespace: str, leaves: Sequence[Leaf], rows: int) -> list[Piece]:
    """Cut a table into pieces of about `rows` rows; an empty table is one piece."""
    return [Piece(namespace, {"parts": some}, count) for some, count in cut(leaves, rows)]


def whole(namespace: str, leaves: Sequence[Leaf]) -> Piece:
    """A table as one piece, read in one snapshot.  Without following, no later change would correct what several
    snapshots miss."""
    parts = [(leaf.oid, 0, None) for leaf in leaves]
    return Piece(namespace, {"parts": parts, "at_once": True}, sum(leaf.rows for leaf in leaves))


def select(table: Table, leaf: tuple[str, str], condition: str | None, first: int = 0, end: int | None = None) -> str:
    """The query that reads a part of a table."""
    bounds = [f"ctid >= '({first},0)'"] if first else []
    bounds += [f"ctid < '({end},0)'"] if end is not None else []
    bounds += [f"({condition})"] if condition else []
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    columns = ", ".join(f"{column.expression} AS {names.quote(f'c{n}')}" for n, column in enumerate(table.columns))
    return f"SELECT {columns} FROM ONLY {names.quote(*leaf)}{where}"


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How to read a table: its columns, the condition that its rows must meet, and the names of its leaves by oid."""

    table: Table
    condition: str | None
    leaves: Mapping[int, tuple[str, str]]


def read(
    database: Database, plan: TablePlan, parts: Sequence[Sequence[Any]], size: int, at_once: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some parts of a table, except of parts that no longer exist.  `at_once`: read all in one
    snapshot. Without rows, yield one batch without rows, which has the columns."""
    table, empty = plan.table, bool(plan.table.columns)
    with database.lent() as connection, database.guarded(f"copying {table.namespace}"):
        if at_once:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for oid, first, end in parts:
            if oid in plan.leaves:
                query = select(table, plan.leaves[oid], plan.condition, first, end)
                for batch in stream(connection, table, query, size):
                    empty = False
                    yield batch
                if not at_once:
                    connection.commit()
        connection.commit()
    if empty:
        none = [pa.nulls(0, column.type.arrow) for column in table.columns]  # pa.array makes no empty array of uuids
        yield build_rows(table.namespace, table.columns, none, table.keys, typed, op=Op.INSERT, mode=Mode.COPY)


def stream(connection: Any, table: Table, query: str, size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a query of the copy selects, as rows of the table."""
    if not table.columns:
        return
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(size)})
        cursor.execute(query)
        with cursor.fetch_record_batch() as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield as_rows(table, batch.slice(start, BATCH_ROWS))


def as_rows(table: Table, batch: pa.RecordBatch, clock: Callable[[], float] = time.time) -> pa.RecordBatch:
    """Make rows of a copy from a batch that ADBC has read."""
    arrays = [
        array.cast(column.type.arrow) if column.type.native else typed(column.type, array)
        for column, array in zip(table.columns, batch.columns, strict=True)
    ]
    stamp = int(clock() * 1000)
    return build_rows(
        table.namespace, table.columns, arrays, table.keys, typed, op=Op.INSERT, mode=Mode.COPY, timestamp=stamp
    )
