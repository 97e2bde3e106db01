"""Fetching: reads from the table the fields that the log left out.

The log leaves out large values that an update did not change.  A sink has them from before, except if the copy may have
missed the row, or if the row has a new id.  The value that is read is the newest one.  If it is newer than the change,
the change that set it comes later in the log and sets it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tailrace.adaptors.postgres import names
from tailrace.adaptors.postgres.catalog import Column
from tailrace.adaptors.postgres.source.pgoutput import UNSET, Row

if TYPE_CHECKING:
    from psycopg import Connection

ROWS_PER_QUERY = 1000


def fetch(
    connection: Connection[Any], table: tuple[str, str], columns: Sequence[Column], keys: Sequence[int], rows: list[Row]
) -> list[bool] | None:
    """Fill in the unset fields of rows, found by their keys; return for each row whether it was found.  None: the table
    or a column no longer exists."""
    import psycopg

    found: list[bool] = []
    try:
        for start in range(0, len(rows), ROWS_PER_QUERY):
            found += _some(connection, table, columns, keys, rows[start : start + ROWS_PER_QUERY])
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedObject):
        return None
    return found


def _some(
    connection: Connection[Any], table: tuple[str, str], columns: Sequence[Column], keys: Sequence[int], rows: list[Row]
) -> list[bool]:
    wanted = sorted({n for row in rows for n, value in enumerate(row) if value is UNSET})
    values = [[row[k].decode() for row in rows] for k in keys]
    answers = connection.execute(_query(table, columns, keys, wanted), values).fetchall()
    found = [False] * len(rows)
    for number, *texts in answers:
        row, found[number - 1] = rows[number - 1], True
        for n, text in zip(wanted, texts, strict=True):
            if row[n] is UNSET:
                row[n] = None if text is None else text.encode()
    return found


def _query(table: tuple[str, str], columns: Sequence[Column], keys: Sequence[int], wanted: Sequence[int]) -> str:
    arrays = ", ".join("%s::text[]" for _ in keys)
    aliases = ", ".join([f"k{k}" for k in keys] + ["number"])
    texts = "".join(f", {columns[n].text}" for n in wanted)
    same = " AND ".join(f"{names.quote(columns[k].name)} = k{k}::{columns[k].type.plain}" for k in keys)
    around = (
        f"SELECT number{texts} FROM unnest(",
        f") WITH ORDINALITY AS asked({aliases}) JOIN {names.quote(*table)} ON {same}",
    )
    return arrays.join(part.replace("%", "%%") for part in around)
