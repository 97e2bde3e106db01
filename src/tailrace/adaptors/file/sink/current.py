"""Current documents: reads the batches of a namespace's change log, and gives the newest state of each document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.adaptors.file.names import TRUNCATED, Folders, batch_number
from tailrace.adaptors.file.sink.shapes import OP, UNSET, own_columns, own_name
from tailrace.errors import NotReady


def current(path: str | Path, namespace: str) -> list[dict[str, Any]]:
    """The current documents of a namespace: the last state of each that was not deleted since.  Without a key two equal
    documents count as two.  `NotReady` if the batches have the documents alone (plain = true)."""
    documents: dict[str, list[dict[str, Any]]] = {}
    for batch, keys in _batches(Path(path) / Folders(Path(path)).of(namespace)):
        op, unset = own_name(batch.schema, OP), own_name(batch.schema, UNSET)
        if op not in batch.schema.names:
            raise NotReady(f"{path} has the documents alone (plain = true), which do not say what was deleted")
        mine = own_columns(batch.schema)
        for row in batch.to_pylist():
            document = {name: value for name, value in row.items() if name not in mine}
            _apply(documents, row[op], row.get(unset) or (), document, keys)
    return [document for same in documents.values() for document in same]


def _apply(
    documents: dict[str, list[dict[str, Any]]], op: str, unset: Sequence[str], row: dict[str, Any], keys: list[str]
) -> None:
    for name in unset:
        del row[name]
    id = repr([row.get(key) for key in keys or sorted(row)])
    same = documents.setdefault(id, [])
    if op == "delete":
        del same[-1:]
    elif keys:
        documents[id] = [{**same[0], **row} if same and unset else row]
    else:
        same.append(row)


def _batches(folder: Path) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
    """The rows after the last truncate, in the order of the log, each batch with the fields of its key."""
    names = sorted(entry.name for entry in folder.iterdir() if batch_number(entry.name) or TRUNCATED in entry.name)
    truncated = max((n for n, name in enumerate(names) if name.endswith(TRUNCATED)), default=-1)
    for name in names[truncated + 1 :]:
        for part in sorted((folder / name).glob("*.parquet")):
            with pq.ParquetFile(part) as file:
                keys = msgspec.json.decode((file.schema_arrow.metadata or {}).get(b"keys", b"[]"), type=list[str])
                yield from ((batch, keys) for batch in file.iter_batches())
