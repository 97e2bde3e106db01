"""The state of a namespace: one Parquet file with its current rows, which each merge replaces atomically.

    <path>/<namespace>/state.parquet                                    the rows; its metadata: keys, owner, through
    <path>/_tailrace/changes/<pipeline>.<writer>/<namespace>/batch-…    finished batches that are not merged yet
    <path>/_tailrace/changes/<pipeline>.<writer>/<namespace>/merged     an empty file: a state has been written

A batch is finished in the folder of changes, in the same way as with keep = changes.  A merge reads the state and the
batches after `through`, writes the new state into staging, with the name of the last batch as `through`, and renames it
into place.  So a reader sees one whole file, old or new, and each batch is in it once: a merge that stops before the
rename is done again; a merge after the rename finds no batch after `through`, and only removes the old ones.

However much is pending, as after a copy or a transaction of millions of rows, a merge has one row group in memory at a
time, and beside it the ids of the changes.  If these are very many, it writes several states one after the other, and
renames the last one into place.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
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
GROUP_ROWS, GROUP_BYTES = 65_536, 32 * 1024 * 1024
"""The most rows of a row group of a state, and about how many bytes.  A merge reads one row group at a time."""
MERGED_ROWS = 1_000_000
"""How many changes are merged into a state at a time."""


def is_lost(root: Path, changes: Path) -> bool:
    """Whether a namespace's state was written once and is gone."""
    return (changes / MERGED).exists() and not (root / changes.name / STATE).exists()


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group of a part file; `number` is None if the file has none."""

    path: Path
    number: int | None
    rows: int
    schema: pa.Schema

    @property
    def keys(self) -> list[str]:
        """The fields that make up the id of the file's documents."""
        return msgspec.json.decode(self.schema.metadata[b"keys"], type=list[str])

    @property
    def documents(self) -> pa.Schema:
        """The columns of the documents."""
        return _no_rows(self.schema).drop_columns(own_columns(self.schema)).schema

    def read(self, wanted: Collection[str] | None = None) -> pa.Table:
        """The rows, with those columns that are wanted; None: all."""
        columns = [name for name in self.schema.names if wanted is None or name in wanted]
        if self.number is None:
            return _readable(_no_rows(self.schema).select(columns))
        with pq.ParquetFile(self.path) as file:
            return _readable(file.read_row_group(self.number, columns=columns).select(columns))


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
        found = self._changes.iterdir() if self._changes.is_dir() else ()
        if not (names := sorted(entry.name for entry in found if batch_number(entry.name))):
            return False
        through = self._through()
        pending = [name for name in names if name > through]
        if pending:
            cut = max((n for n, name in enumerate(pending) if name.endswith(TRUNCATED)), default=-1)
            self._replace(pending[cut + 1 :], pending[-1], emptied=cut >= 0)
        for name in names:
            self._disk.remove(self._changes / name)
        return bool(pending)

    def _through(self) -> str:
        """The last batch that the state has; "" if there is no state yet."""
        if not self._state.exists():
            return ""
        with pq.ParquetFile(self._state) as file:
            metadata = file.schema_arrow.metadata or {}
        if metadata.get(b"owner", b"").decode() != self._owner:
            raise NotReady(f"{self._state} is another writer's; give each one that keeps a state a folder of its own")
        return str(metadata.get(b"through", b"").decode())

    def _pieces(self, names: list[str]) -> Iterator[_Piece]:
        """The changes of these batches, in order."""
        for name in names:
            for path in sorted((self._changes / name).glob("*.parquet")):
                with pq.ParquetFile(path) as file:
                    metadata, schema = file.metadata, file.schema_arrow
                for n in range(metadata.num_row_groups):
                    yield _Piece(path, n, metadata.row_group(n).num_rows, schema)
                if not metadata.num_row_groups:
                    yield _Piece(path, None, 0, schema)

    def _replace(self, names: list[str], through: str, *, emptied: bool) -> None:
        """Replace the state by one with the changes of these batches; `emptied`: a truncate stands before them."""
        before = self._state if self._state.exists() else None
        if before is None and not names:  # a truncate of a namespace that has no state
            return
        staged = self._root / STAGING / secrets.token_hex(8)
        self._disk.make_folder(staged)
        try:
            self._move_into_place(self._written(staged, None if emptied else before, names, through))
        finally:
            self._disk.remove(staged)

    def _written(self, staged: Path, before: Path | None, names: list[str], through: str) -> Path:
        """Write the new state into a folder; returns its path."""
        written: Path | None = None
        for n, pieces in enumerate(_some_at_a_time(self._pieces(names))):
            last, written = written, staged / f"{n}.parquet"
            self._write(written, last or before, pieces, through)
            if last is not None:
                last.unlink()
        if written is None:  # a truncate, and no batch after it
            written = staged / STATE
            self._write_empty(written, through)
        self._disk.sync(written)
        return written

    def _write(self, path: Path, before: Path | None, pieces: list[_Piece], through: str) -> None:
        old = None if before is None else pq.ParquetFile(before)
        try:
            schemas = [] if old is None else [old.schema_arrow]
            schemas += {piece.path: piece.documents for piece in pieces}.values()
            schema = self._joined([_plain(one) for one in schemas])
            keys = pieces[-1].keys
            with self._writer(path, schema, keys, through) as writer:
                _Merged(writer.schema, keys, pieces).write(old, _Groups(writer))
        finally:
            if old is not None:
                old.close()

    def _write_empty(self, path: Path, through: str) -> None:
        with pq.ParquetFile(self._state) as old:
            self._writer(path, _plain(old.schema_arrow), self._keys(old), through).close()

    def _joined(self, schemas: list[pa.Schema]) -> pa.Schema:
        try:
            return pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise NotReady(
                f"{self._state}: its columns have changed in a way that has no common type: {error}"
            ) from None

    def _writer(self, path: Path, schema: pa.Schema, keys: list[str], through: str) -> pq.ParquetWriter:
        metadata = {"keys": msgspec.json.encode(keys), "owner": self._owner, "through": through}
        return pq.ParquetWriter(path, schema.with_metadata(metadata), compression=self._compression)

    def _move_into_place(self, written: Path) -> None:
        self._disk.make_folder(self._state.parent)
        self._disk.make_folder(self._changes)
        self._disk.move(written, self._state)
        if not (self._changes / MERGED).exists():
            (self._changes / MERGED).touch()
            self._disk.sync(self._changes)

    def _keys(self, file: pq.ParquetFile) -> list[str]:
        return msgspec.json.decode((file.schema_arrow.metadata or {}).get(b"keys", b"[]"), type=list[str])


def _some_at_a_time(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Pieces that are merged together, in order."""
    some: list[_Piece] = []
    rows = 0
    for piece in pieces:
        some.append(piece)
        rows += piece.rows
        if rows >= MERGED_ROWS:
            yield some
            some, rows = [], 0
    if some:
        yield some


_Change = tuple[bool, Collection[str], dict[str, Any]]
"""A change of a document: whether it is a delete, the fields that it leaves as they are, and the others."""


class _Merged:
    """The rows of the new state, from those of the old state and the changes after it."""

    def __init__(self, schema: pa.Schema, keys: list[str], pieces: list[_Piece]) -> None:
        self._schema, self._keys, self._pieces = schema, keys, pieces
        self._key_schema = pa.schema([schema.field(key) for key in keys])
        outline = pa.concat_tables([self._outline(piece) for piece in pieces]).combine_chunks()
        self._ids, self._deletes = outline.column("id").combine_chunks(), outline.column("delete")
        self._partial = pc.unique(self._ids.filter(outline.column("partial").combine_chunks()))
        """The ids of documents with changes that leave fields as they are."""

    def _outline(self, piece: _Piece) -> pa.Table:
        """Of each change the id, whether it is a delete, and whether it leaves fields as they are."""
        op, unset = own_name(piece.schema, OP), own_name(piece.schema, UNSET)
        table = piece.read({*self._keys, op, unset})
        partial = pa.array([False] * table.num_rows, pa.bool_())
        if unset in table.schema.names:
            partial = pc.fill_null(pc.greater(pc.list_value_length(table.column(unset)), 0), False)
        return pa.table({"id": self._ids_of(table), "delete": pc.equal(table.column(op), "delete"), "partial": partial})

    def _ids_of(self, rows: pa.Table | pa.RecordBatch) -> pa.Array[Any]:
        some = [row_keys("", fitted(batch, self._key_schema), self._keys) for batch in _batches(rows)]
        return pa.concat_arrays(some) if some else pa.array([], pa.binary())

    def write(self, old: pq.ParquetFile | None, out: _Groups) -> None:
        """Write the unchanged rows of the old state, and the changed and the new rows."""
        changes, seen = self._partial_changes(), set[bytes]()
        for batch in _rows_of(old) if old is not None else ():
            rows = fitted(without(batch.replace_schema_metadata(None), parquet_unfit), self._schema)
            ids = self._ids_of(rows)
            changed = pc.is_in(ids, value_set=self._ids)
            out.put(rows.filter(pc.invert(changed)))
            if changes:
                before = zip(ids.filter(changed).to_pylist(), rows.filter(changed).to_pylist(), strict=True)
                held = {id: row for id, row in before if id in changes}
                self._put_changed(out, [_changed(row, changes[id]) for id, row in held.items()])
                seen |= held.keys()
        last = self._last()
        for at, piece in self._each():
            kept = last.slice(at, piece.rows)
            if pc.any(kept).as_py():
                for batch in self._documents(piece.read().filter(kept)):
                    out.put(batch)
        self._put_changed(out, [_changed(None, some) for id, some in changes.items() if id not in seen])
        out.flush()

    def _each(self) -> Iterator[tuple[int, _Piece]]:
        """The pieces, each with the number of its first change."""
        at = 0
        for piece in self._pieces:
            yield at, piece
            at += piece.rows

    def _documents(self, table: pa.Table) -> list[pa.RecordBatch]:
        """The documents of changes, with the columns of the state."""
        documents = table.drop_columns(own_columns(table.schema)).replace_schema_metadata(None)
        return [fitted(batch, self._schema) for batch in _batches(documents)]

    def _last(self) -> pa.Array[Any]:
        """Of each change whether it gives a row of the state: the last one of a document that exists and had only whole
        changes."""
        numbers = pa.arange(0, len(self._ids))
        last = pa.table({"id": self._ids, "at": numbers}).group_by("id", use_threads=False).aggregate([("at", "max")])
        at = last.column("at_max")
        partial = pc.is_in(last.column("id"), value_set=self._partial)
        kept = at.filter(pc.invert(pc.or_(self._deletes.take(at), partial)))
        return pc.is_in(numbers, value_set=kept)

    def _partial_changes(self) -> dict[bytes, list[_Change]]:
        """All changes of the documents that have changes which leave fields as they are, in order."""
        changes: dict[bytes, list[_Change]] = {id: [] for id in self._partial.to_pylist()}
        wanted = pc.is_in(self._ids, value_set=self._partial)
        for at, piece in self._each() if changes else ():
            mine = wanted.slice(at, piece.rows)
            if not pc.any(mine).as_py():
                continue
            ids = self._ids.slice(at, piece.rows).filter(mine).to_pylist()
            deletes = self._deletes.slice(at, piece.rows).filter(mine).to_pylist()
            table, unset = piece.read().filter(mine), own_name(piece.schema, UNSET)
            left = table.column(unset).to_pylist() if unset in table.schema.names else [None] * len(ids)
            documents = [row for batch in self._documents(table) for row in batch.to_pylist()]
            for id, delete, names, row in zip(ids, deletes, left, documents, strict=True):
                changes[id].append((delete, frozenset(names or ()), row))
        return changes

    def _put_changed(self, out: _Groups, documents: Iterable[dict[str, Any] | None]) -> None:
        if rows := [row for row in documents if row is not None]:
            out.put(pa.RecordBatch.from_pylist(rows, self._schema))


def _changed(row: dict[str, Any] | None, changes: Iterable[_Change]) -> dict[str, Any] | None:
    """A document after its changes; None: there is none."""
    for delete, unset, document in changes:
        if delete:
            row = None
        elif row is not None or not unset:
            row = {**(row or {}), **{name: value for name, value in document.items() if name not in unset}}
    return row


class _Groups:
    """Writes rows to a state in row groups of bounded size."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._size = 0

    def put(self, rows: pa.RecordBatch) -> None:
        """Write rows, or keep them for the next row group."""
        if rows.num_rows:
            self._waiting.append(rows.replace_schema_metadata(self._writer.schema.metadata))
            self._rows, self._size = self._rows + rows.num_rows, self._size + rows.nbytes
        if self._rows >= GROUP_ROWS or self._size >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._size = [], 0, 0


def _rows_of(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The rows of a state, one row group at a time."""
    for n in range(file.num_row_groups):
        yield from file.read_row_group(n).to_batches()


def _no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows.  Arrow's own `empty_table` cannot make lists of uuids, or of JSON."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Columns in the types that this version writes."""
    return _readable(_no_rows(schema)).schema.remove_metadata()


def _readable(table: pa.Table) -> pa.Table:
    """A table that an earlier version wrote, in the types that this version writes."""
    if not any(parquet_unfit(kind) for kind in table.schema.types):
        return table
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return pa.Table.from_batches([without(batch, parquet_unfit) for batch in batches])


def _batches(rows: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    return [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
