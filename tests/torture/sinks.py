"""Sinks: what each holds now, as rows of the source's own types.

What Parquet files and topics hold is read with nothing of the product but its names, folded change by change, and
brought back into the source, into a temporary table of the same columns: its texts are what is compared."""

from __future__ import annotations

import datetime
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow.parquet as pq

import tailrace
from tailrace.adaptors.file.names import TRUNCATED, batch_number, folder_name
from tailrace.adaptors.postgres.names import quote
from tailrace.adaptors.rows.provenance import PLACE
from tailrace.adaptors.topic.names import topic_name
from tailrace.log.record import Op

Row = dict[str, str | None]


@dataclass(frozen=True)
class Shape:
    """A table of the source: its columns with their types, and its key."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    partitioned: bool

    @property
    def sql(self) -> str:
        """Its name in SQL, without those that inherit from it."""
        return f"{'' if self.partitioned else 'ONLY '}{quote(self.schema, self.name)}"


class Fold:
    """Changes in the order of the log, made into the rows that are there."""

    def __init__(self, shape: Shape) -> None:
        self._key = shape.key
        self._rows: dict[Any, tuple[Row, int]] = {}

    def change(self, op: Op, row: Row, id: Any = None) -> None:
        """One change; a row may lack fields that the source did not send."""
        if id is None:
            id = tuple(row.get(name) for name in self._key) if self._key else tuple(sorted(row.items()))
        before, count = self._rows.get(id, ({}, 0))
        if op is Op.DELETE:
            if count > 1 and not self._key:
                self._rows[id] = before, count - 1
            else:
                self._rows.pop(id, None)
        else:
            self._rows[id] = {**before, **row}, 1 if self._key else count + 1

    def clear(self) -> None:
        """All rows are gone."""
        self._rows.clear()

    def rows(self) -> Iterator[Row]:
        """What there is."""
        for row, count in self._rows.values():
            for _ in range(count):
                yield row


def postgres(sink: psycopg.Connection[Any], shape: Shape) -> list[str] | None:
    """The rows of a table of the sink as texts; None if it has none.  A column that it lacks is null in all rows."""
    found = sink.execute("SELECT to_regclass(%s)::oid", [quote(shape.schema, shape.name)]).fetchone()
    if found is None or found[0] is None:
        return None
    sql = "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
    has = {name for (name,) in sink.execute(sql, [found[0]]).fetchall()}
    columns = ", ".join(quote(name) if name in has else f"NULL AS {quote(name)}" for name, _ in shape.columns)
    return texts(sink, f"SELECT {columns} FROM {quote(shape.schema, shape.name)}")


def texts(connection: psycopg.Connection[Any], query: str) -> list[str]:
    """Rows as the server writes them, sorted."""
    sql = f"SELECT the_row::text FROM ({query}) the_row"
    return sorted(text for (text,) in connection.execute(sql.encode()).fetchall())


def parquet(folder: Path, namespace: str, shape: Shape) -> list[Row] | None:
    """The rows that a folder of batches stands for."""
    place = folder / folder_name(namespace)
    if not place.is_dir():
        return None
    fold = Fold(shape)
    for batch in sorted(entry.name for entry in place.iterdir() if batch_number(entry.name)):
        if batch.endswith(TRUNCATED):
            fold.clear()
        for part in sorted((place / batch).glob("*.parquet")):
            with pq.ParquetFile(part) as file:
                own = (file.schema_arrow.metadata or {}).get(b"own", b"_").decode()
                for some in file.iter_batches():
                    _fold_parquet(fold, some.to_pylist(), own)
    return list(fold.rows())


def _fold_parquet(fold: Fold, rows: Iterable[dict[str, Any]], own: str) -> None:
    """`own` is what the names of the product's own columns begin with."""
    for row in rows:
        op, unset = Op[row.pop(f"{own}op").upper()], row.pop(f"{own}unset", None) or ()
        for ours in ("timestamp", *PLACE):
            row.pop(own + ours, None)
        fold.change(op, {name: as_text(value) for name, value in row.items() if name not in unset})


def topic(home: Path, namespace: str, shape: Shape) -> list[Row] | None:
    """The rows that the records of a topic stand for."""
    with tailrace.open(home) as opened:
        name = topic_name(namespace)
        if name not in opened.topics():
            return None
        folds: dict[int, Fold] = {}
        kinds = dict(shape.columns)
        for record in opened.topic(name).records():
            fold = folds.setdefault(record.partition, Fold(shape))
            if record.op is Op.COMMAND:
                fold.clear()
                continue
            row = _topic_row(record.value, kinds) if record.value is not None else {}
            fold.change(record.op, row, record.key)
    return [row for fold in folds.values() for row in fold.rows()]


def _topic_row(value: bytes, kinds: dict[str, str]) -> Row:
    raw = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    return {name: _from_json(bytes(text), kinds.get(name, "text")) for name, text in raw.items()}


def _from_json(raw: bytes, kind: str) -> str | None:
    if raw == b"null":
        return None
    if kind in ("json", "jsonb"):
        return raw.decode()
    found = json.loads(raw, parse_float=str, parse_int=str)
    if kind == "bytea" and isinstance(found, str):
        return "\\x" + b64decode(found).hex()
    return as_text(found)


def as_text(value: Any) -> str | None:
    """A value as PostgreSQL would read it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        return _trimmed(value.isoformat(" ").replace("+00:00", "")) + ("+00" if value.tzinfo else "")
    if isinstance(value, datetime.time):
        return _trimmed(value.isoformat())
    if isinstance(value, list):
        return "{" + ",".join("NULL" if one is None else _element(as_text(one) or "") for one in value) + "}"
    return str(value)


def _trimmed(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def back_in_the_source(source: psycopg.Connection[Any], shape: Shape, rows: Sequence[Row]) -> list[str]:
    """Rows that came from elsewhere, as texts of the source's types."""
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in shape.columns)
    with source.transaction(force_rollback=True):
        source.execute(f"CREATE TEMP TABLE came_back ({columns})".encode())
        if shape.columns:
            names = ", ".join(quote(name) for name, _ in shape.columns)
            with source.cursor() as cursor, cursor.copy(f"COPY came_back ({names}) FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row([row.get(name) for name, _ in shape.columns])
        else:
            source.execute("INSERT INTO came_back SELECT FROM generate_series(1, %s)", [len(rows)])
        return texts(source, "SELECT * FROM came_back")
