"""Current: the documents that a folder of Parquet batches stands for, the newest state of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.file.names import TRUNCATED, batch_number, folder_name
from tailrace.adaptors.file.shapes import OP, TIMESTAMP, UNSET
from tailrace.errors import NotReady


def current(path: str | Path, namespace: str) -> list[dict[str, Any]]:
    """The documents of a namespace as they are now: inserted or updated last, and not deleted since."""
    documents: dict[Any, dict[str, Any]] = {}
    for batch, keys in _batches(Path(path) / folder_name(namespace)):
        if OP not in batch.schema.names:
            raise NotReady(f"{path} has the documents alone (plain = true), which do not say what was deleted")
        for row in batch.to_pylist():
            _apply(documents, row, keys)
    return list(documents.values())


def _apply(documents: dict[Any, dict[str, Any]], row: dict[str, Any], keys: list[str]) -> None:
    op, unset = row.pop(OP), row.pop(UNSET, None) or ()
    del row[TIMESTAMP]
    for name in unset:
        del row[name]
    id = repr([row.get(key) for key in keys or sorted(row)])
    if op == "delete":
        documents.pop(id, None)
    else:
        documents[id] = {**documents.get(id, {}), **row} if unset else row


def _batches(folder: Path) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
    """Rows in the order they were written in, after the last truncate."""
    names = sorted(entry.name for entry in folder.iterdir() if batch_number(entry.name) or TRUNCATED in entry.name)
    truncated = max((n for n, name in enumerate(names) if name.endswith(TRUNCATED)), default=-1)
    for name in names[truncated + 1 :]:
        for part in sorted((folder / name).glob("*.parquet")):
            with pq.ParquetFile(part) as file:
                keys = msgspec.json.decode((file.schema_arrow.metadata or {}).get(b"keys", b"[]"), type=list[str])
                yield from ((batch, keys) for batch in file.iter_batches())
