"""The state of a namespace: one Parquet file with its current rows, which each merge replaces atomically.

    <path>/<namespace>/state.parquet                                    the rows; its metadata: keys, owner, through
    <path>/_tailrace/changes/<pipeline>.<writer>/<namespace>/batch-…    finished batches that are not merged yet
    <path>/_tailrace/changes/<pipeline>.<writer>/<namespace>/merged     an empty file: a state has been written

A batch is finished in the folder of changes, in the same way as with keep = changes.  A merge reads the state and the
batches after `through`, writes the new state into staging, with the name of the last batch as `through`, and renames it
into place.  So a reader sees one whole file, old or new, and each batch is in it once: a merge that stops before the
rename is done again; a merge after the rename finds no batch after `through`, and only removes the old ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.adaptors.file.names import STAGING, TRUNCATED, batch_number
from tailrace.adaptors.file.sink.disk import Disk
from tailrace.adaptors.file.sink.shapes import OP, UNSET, fitted, own_columns, own_name, parquet_unfit, without
from tailrace.adaptors.rows.record_key import row_keys
from tailrace.errors import NotReady

STATE, MERGED = "state.parquet", "merged"
ROWS_PER_BATCH = 65_536


def is_lost(root: Path, changes: Path) -> bool:
    """Whether a namespace's state was written once and is gone."""
    return (changes / MERGED).exists() and not (root / changes.name / STATE).exists()


@dataclass(slots=True)
class _Part:
    """The changes in one part file."""

    columns: pa.Table
    ops: pa.ChunkedArray[Any]
    unset: list[list[str] | None]
    keys: list[str]


class StateMerge:
    """Merges the finished batches of one namespace into its state."""

    def __init__(self, root: Path, changes: Path, compression: str, disk: Disk) -> None:
        self._root, self._changes, self._compression, self._disk = root, changes, compression, disk
        self._state, self._owner = root / changes.name / STATE, changes.parent.name

    def run(self) -> bool:
        """Merge the pending batches.  Returns whether there were any.  `NotReady` if the state is gone."""
        if is_lost(self._root, self._changes):
            raise NotReady(
                f"{self._state} is gone, and with it all rows that were delivered; `tailrace offset delete` has "
                "everything delivered again"
            )
        old = pq.ParquetFile(self._state) if self._state.exists() else None
        try:
            return self._run(old)
        finally:
            if old is not None:
                old.close()

    def _run(self, old: pq.ParquetFile | None) -> bool:
        through = self._through(old)
        names = (
            sorted(e.name for e in self._changes.iterdir() if batch_number(e.name)) if self._changes.is_dir() else []
        )
        pending = [name for name in names if name > through]
        if pending:
            cut = max((n for n, name in enumerate(pending) if name.endswith(TRUNCATED)), default=-1)
            self._write(None if cut >= 0 else old, list(self._parts(pending[cut + 1 :])), pending[-1])
        for name in names:
            self._disk.remove(self._changes / name)
        return bool(pending)

    def _through(self, old: pq.ParquetFile | None) -> str:
        metadata = (old.schema_arrow.metadata or {}) if old is not None else {}
        if old is not None and metadata.get(b"owner", b"").decode() != self._owner:
            raise NotReady(f"{self._state} is another writer's; give each one that keeps a state a folder of its own")
        return str(metadata.get(b"through", b"").decode())

    def _parts(self, names: list[str]) -> Iterator[_Part]:
        for name in names:
            for path in sorted((self._changes / name).glob("*.parquet")):
                table = _readable(pq.read_table(path))
                op, unset = own_name(table.schema, OP), own_name(table.schema, UNSET)
                missing = table.column(unset).to_pylist() if unset in table.schema.names else [None] * table.num_rows
                keys = msgspec.json.decode(table.schema.metadata[b"keys"], type=list[str])
                yield _Part(table.drop_columns(own_columns(table.schema)), table.column(op), missing, keys)

    def _write(self, old: pq.ParquetFile | None, parts: list[_Part], through: str) -> None:
        schemas = [part.columns.schema.remove_metadata() for part in parts]
        if old is not None:
            schemas = [_readable(_no_rows(old.schema_arrow)).schema.remove_metadata(), *schemas]
        keys = parts[-1].keys if parts else self._keys(old)
        if not schemas and self._state.exists():  # a truncate, and no batch after it
            with pq.ParquetFile(self._state) as before:
                empty = _readable(_no_rows(before.schema_arrow))
                schemas, keys = [empty.schema.remove_metadata()], self._keys(before)
        metadata = {"keys": msgspec.json.encode(keys), "owner": self._owner, "through": through}
        try:
            schema = pa.unify_schemas(schemas, promote_options="permissive").with_metadata(metadata)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise NotReady(
                f"{self._state}: its columns have changed in a way that has no common type: {error}"
            ) from None
        staged = self._root / STAGING / secrets.token_hex(8)
        self._disk.make_folder(staged)
        with pq.ParquetWriter(staged / STATE, schema, compression=self._compression) as writer:
            _Merged(schema, keys, parts).write(old, writer)
        self._disk.sync(staged / STATE)
        self._disk.make_folder(self._state.parent)
        self._disk.make_folder(self._changes)
        self._disk.move(staged / STATE, self._state)
        if not (self._changes / MERGED).exists():
            (self._changes / MERGED).touch()
            self._disk.sync(self._changes)
        self._disk.remove(staged)

    def _keys(self, file: pq.ParquetFile | None) -> list[str]:
        metadata = (file.schema_arrow.metadata or {}) if file is not None else {}
        return msgspec.json.decode(metadata.get(b"keys", b"[]"), type=list[str])


class _Merged:
    """The rows of the new state, from those of the old state and the changes after it."""

    def __init__(self, schema: pa.Schema, keys: list[str], parts: list[_Part]) -> None:
        self._schema, self._keys = schema, keys
        tables = [pa.Table.from_batches([fitted(b, schema) for b in _batches(part.columns)], schema) for part in parts]
        self._rows = pa.concat_tables(tables).combine_chunks() if tables else _no_rows(schema)
        self._ops = [op for part in parts for op in part.ops.to_pylist()]
        self._unset = [unset for part in parts for unset in part.unset]
        self._ids = self._ids_of(self._rows)
        self._partial = {self._ids[n].as_py() for n, unset in enumerate(self._unset) if unset}

    def _ids_of(self, rows: pa.Table | pa.RecordBatch) -> pa.Array[Any]:
        some = [row_keys("", batch, self._keys) for batch in _batches(rows)]
        return pa.concat_arrays(some) if some else pa.array([], pa.binary())

    def write(self, old: pq.ParquetFile | None, writer: pq.ParquetWriter) -> None:
        """Write the unchanged rows of the old state, and then the changed and the new rows."""
        held: dict[bytes, dict[str, Any]] = {}
        for batch in old.iter_batches(ROWS_PER_BATCH) if old is not None else ():
            rows = fitted(without(batch.replace_schema_metadata(None), parquet_unfit), self._schema)
            ids = self._ids_of(rows)
            changed = pc.is_in(ids, value_set=self._ids)
            self._put(writer, rows.filter(pc.invert(changed)))
            if self._partial:
                old_ones = zip(ids.filter(changed).to_pylist(), rows.filter(changed).to_pylist(), strict=True)
                held |= {id: row for id, row in old_ones if id in self._partial}
        last = self._last()
        for start in range(0, len(last), ROWS_PER_BATCH):
            for batch in _batches(self._rows.take(last.slice(start, ROWS_PER_BATCH))):
                self._put(writer, batch)
        if rows := self._overlaid(held):
            self._put(writer, pa.RecordBatch.from_pylist(rows, self._schema))

    def _put(self, writer: pq.ParquetWriter, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            writer.write_batch(rows.replace_schema_metadata(self._schema.metadata))

    def _last(self) -> pa.Array[Any]:
        """The indexes of the last rows of documents that exist and had only whole changes."""
        if not len(self._ids):
            return pa.array([], pa.int64())
        table = pa.table({"id": self._ids, "at": pa.arange(0, len(self._ids))})
        last = table.group_by("id", use_threads=False).aggregate([("at", "max")])
        kept = [
            at
            for id, at in zip(last.column("id").to_pylist(), last.column("at_max").to_pylist(), strict=True)
            if self._ops[at] != "delete" and id not in self._partial
        ]
        return pa.array(sorted(kept), pa.int64())

    def _overlaid(self, held: dict[bytes, dict[str, Any]]) -> list[dict[str, Any]]:
        """Documents with partial changes, each applied to the row in `held`.  Unset fields keep their values."""
        for n, id in enumerate(self._ids.to_pylist()) if self._partial else ():
            if id not in self._partial:
                continue
            if self._ops[n] == "delete":
                held.pop(id, None)
                continue
            row, unset = self._rows.slice(n, 1).to_pylist()[0], set(self._unset[n] or ())
            if unset and id not in held:
                continue
            held[id] = {**held.get(id, {}), **{name: value for name, value in row.items() if name not in unset}}
        return list(held.values())


def _no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows.  Arrow's own `empty_table` cannot make lists of uuids, or of JSON."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def _readable(table: pa.Table) -> pa.Table:
    """A table that an earlier version wrote, in the types that this version writes."""
    if not any(parquet_unfit(kind) for kind in table.schema.types):
        return table
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return pa.Table.from_batches([without(batch, parquet_unfit) for batch in batches])


def _batches(rows: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
