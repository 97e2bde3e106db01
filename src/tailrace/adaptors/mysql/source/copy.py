"""Copying: cuts a table into pieces of neighbouring keys, and reads each piece by one SELECT with its own snapshot.

InnoDB keeps rows in the order of the primary key, so a range of keys is a range of pages.  A key of one integer is cut
at evenly spaced numbers, and a piece that the server estimates as too large is cut again.  Any other key is cut by
walking its index.  An update may move a row from one piece to another between their snapshots: then the binlog has the
whole row after both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.mysql import names, packets
from tailrace.adaptors.mysql.catalog import Table
from tailrace.adaptors.mysql.database import ask
from tailrace.adaptors.mysql.source.row_builder import build_rows
from tailrace.adaptors.mysql.types import BYTES, INTEGERS, from_texts
from tailrace.log.record import Mode, Op

BATCH_ROWS = 50_000
MOST_PIECES = 10_000
Bound = list[Any]
"""The values of the key columns where a piece begins or ends; texts and bytes as hexadecimal digits."""


def pieces(connection: Any, table: Table, rows: int, size: int) -> list[Piece]:
    """Cut a table of about `rows` rows into pieces of about `size` rows; an empty table gives one piece."""
    if not table.cuttable or rows <= size:
        return [whole(table, rows)]
    count = min(MOST_PIECES, -(-rows // size))
    edges = _numbers(connection, table, count, size) if _is_numbered(table) else _walk(connection, table, size)
    bounds: list[Bound | None] = [None, *edges, None]
    each = rows // (len(edges) + 1)
    return [Piece(table.namespace, {"from": a, "to": b}, each) for a, b in pairwise(bounds)]


def whole(table: Table, rows: int) -> Piece:
    """Return a table as one piece, which is read in one snapshot."""
    return Piece(table.namespace, {"from": None, "to": None}, rows)


def _is_numbered(table: Table) -> bool:
    kinds = {column.name: column.type.kind for column in table.columns}
    return len(table.keys) == 1 and kinds[table.keys[0]] in INTEGERS


def _numbers(connection: Any, table: Table, count: int, size: int) -> list[Bound]:
    key = names.quote(table.keys[0])
    ((low, high),) = ask(connection, f"SELECT MIN({key}), MAX({key}) FROM {table.quoted}")
    if low is None or low == high:
        return []
    low, high = int(low), int(high)
    edges = sorted({low + (high - low) * n // count for n in range(1, count)} - {low})
    spans = list(zip([low, *edges], [*edges, high + 1], strict=True))
    out: list[int] = []
    for first, end in spans:
        out += [first, *_halved(connection, table, first, end, size)]
    return [[edge] for edge in out[1:]]


def _halved(connection: Any, table: Table, first: int, end: int, size: int, depth: int = 0) -> list[int]:
    """Return where to cut a range of numbers in which the server estimates too many rows."""
    if depth >= 12 or end - first <= size:
        return []
    key = names.quote(table.keys[0])
    sql = f"EXPLAIN SELECT 1 FROM {table.quoted} WHERE {key} >= {first} AND {key} < {end}"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        at = [column[0] for column in cursor.description].index("rows")
        found = cursor.fetchall()[0][at]
    if int(found or 0) <= 2 * size:
        return []
    middle = (first + end) // 2
    below = _halved(connection, table, first, middle, size, depth + 1)
    return [*below, middle, *_halved(connection, table, middle, end, size, depth + 1)]


def _walk(connection: Any, table: Table, size: int) -> list[Bound]:
    """Return every `size`-th key, read from the index alone."""
    keys = ", ".join(names.quote(key) for key in table.keys)
    columns = [column for key in table.keys for column in table.columns if column.name == key]
    edges: list[Bound] = []
    while len(edges) < MOST_PIECES:
        where = f" WHERE {_compared(table, edges[-1], '>')}" if edges else ""
        sql = f"SELECT {_asked(columns)} FROM {table.quoted}{where} ORDER BY {keys} LIMIT 1 OFFSET {size}"
        found = ask(connection, sql)
        if not found:
            break
        edges.append([value.decode() if isinstance(value, bytes) else value for value in found[0]])
    return edges


def _asked(columns: Sequence[Any]) -> str:
    """Return the expressions that read key columns as texts, which `_written` turns into literals."""
    out = []
    for column in columns:
        name = names.quote(column.name)
        if column.type.kind in BYTES:
            out.append(f"HEX({name})")
        elif column.type.kind in ("char", "varchar"):
            out.append(f"HEX(CONVERT({name} USING utf8mb4))")
        else:
            out.append(f"CAST({name} AS CHAR)")
    return ", ".join(out)


def _compared(table: Table, bound: Bound, sign: str) -> str:
    """Return the condition for rows after, from or before a key, in a form for which the server uses the index."""
    kinds = {column.name: column.type.kind for column in table.columns}
    ors = []
    for n, key in enumerate(table.keys):
        equal = [f"{names.quote(k)} = {_written(kinds[k], v)}" for k, v in zip(table.keys[:n], bound, strict=False)]
        last = n == len(table.keys) - 1
        strict = sign if last else sign[0]
        ors.append(" AND ".join([*equal, f"{names.quote(key)} {strict} {_written(kinds[key], bound[n])}"]))
    return "(" + " OR ".join(f"({one})" for one in ors) + ")"


def _written(kind: str, value: Any) -> str:
    if kind in INTEGERS:
        return str(int(value))
    if kind == "decimal":  # the server would compare a quoted one as a double
        return str(value)
    if kind in ("char", "varchar"):
        return f"_utf8mb4 X'{value}'"
    return f"X'{value}'" if kind in BYTES else names.literal(str(value))


def select(table: Table, bounds: dict[str, Any]) -> str:
    """Return the query that reads the rows between two bounds."""
    columns = ", ".join(column.expression for column in table.columns)
    parts = [_compared(table, bounds["from"], ">=")] if bounds.get("from") else []
    parts += [_compared(table, bounds["to"], "<")] if bounds.get("to") else []
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return f"SELECT {columns} FROM {table.quoted}{where}"


def stream(
    connection: Any, table: Table, bounds: dict[str, Any], size: int, *, zero_dates: bool = True
) -> Iterator[pa.RecordBatch]:
    """Read the rows between two bounds of a MySQL table in batches; without rows yield one empty batch, which tells the
    columns."""
    _, answer = packets.query(connection, select(table, bounds))
    held: list[list[bytes | None]] = [[] for _ in table.columns]
    taken = count = 0
    empty = True
    for row_size in packets.rows(answer, [column.append for column in held]):
        taken += row_size
        count += 1
        if count >= BATCH_ROWS or taken >= size:
            yield _built(table, held, zero_dates)
            taken = count = 0
            empty = False
            for column in held:
                column.clear()
    if count or empty:
        yield _built(table, held, zero_dates)


def _built(table: Table, held: Sequence[list[bytes | None]], zero_dates: bool) -> pa.RecordBatch:
    arrays = [from_texts(column.type, values) for column, values in zip(table.columns, held, strict=True)]
    stamp = int(time.time() * 1000)
    return build_rows(
        table.namespace,
        table.columns,
        arrays,
        table.keys,
        zero_dates=zero_dates,
        op=Op.INSERT,
        mode=Mode.COPY,
        timestamp=stamp,
    )
