"""Staging: tasks store the rows of a share in one object, which no reader of a table looks at.

    _tailrace/staging/<seconds since 1970, hexadecimal>-<unique>      Arrow streams, one after the other

For keep = state the rows are folded, one for each document, in the form of `rows`.  For keep = changes they already
have the table's columns.  Either way their types are those of a lake table.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.file.sink.shapes import OP, OWN, shaped
from tailrace.adaptors.lake.column_types import carried, carrier
from tailrace.adaptors.lake.schemas import rejected
from tailrace.adaptors.lake.stores import STAGING, Store
from tailrace.adaptors.lake.units import Share, Unit
from tailrace.adaptors.rows.rows import columns_of, keys_of, make_rows, namespace_of
from tailrace.adaptors.rows.unset import moved
from tailrace.adaptors.sinks.folding import FoldedBatch, counted, folded_batches
from tailrace.errors import Damaged, NotReady
from tailrace.log.record import Mode

_log = logging.getLogger("tailrace")
ORPHANED_SECONDS = 24 * 3600
"""After how long an object belongs to no batch any more, unless it is part of the pending work of any writer."""
_NAME = re.compile(r"([0-9a-f]+)-[0-9a-f]+")
_PREFIX = "_"


def stage(store: Store, rows: Iterable[pa.RecordBatch], *, state: bool, plain: bool) -> Staged:
    """Write a task's share into an object of its own; an empty share makes none."""
    counts: dict[str, int] = {}
    share = Share()
    name = f"{STAGING}/{int(time.time()):x}-{secrets.token_hex(8)}"
    formed = formed_rows(counted(rows, counts), state=state, plain=plain)
    parts = _streams(name, formed, share, state=state)
    first = next(parts, None)
    if first is not None:
        store.put(name, chain([first], parts))
    return Staged(sum(counts.values()), share, counts)


def formed_rows(
    rows: Iterable[pa.RecordBatch], *, state: bool, plain: bool
) -> Iterator[tuple[pa.RecordBatch, tuple[int, int]]]:
    """Rows in the form in which they are staged.  Each batch comes with how many documents it puts and how many it
    deletes."""
    if state:
        for folded in folded_batches(rows):
            if folded.keys:
                yield _folded(folded), (folded.folded.rows - folded.deletes - folded.partial, folded.deletes)
            elif folded.folded.rows:
                raise NotReady(
                    f"{folded.namespace} has no key, so it is not known which row of its table a change replaces; "
                    "give it one, or keep = 'changes'"
                )
    else:
        for batch in rows:
            logged = _logged(batch, plain)
            yield logged, (logged.num_rows, 0)


def _folded(batch: FoldedBatch) -> pa.RecordBatch:
    folded, keys = batch.folded, batch.keys
    names = folded.columns.schema.names
    places = [n for n, f in enumerate(folded.columns.schema) if not pa.types.is_null(f.type) or f.name in keys]
    columns = _carried(folded.columns.select([names[n] for n in places]), batch.namespace, keys)
    unset = folded.unset if len(places) == len(names) else moved(folded.unset, places)
    whole = pc.is_null(folded.unset)
    return make_rows(
        batch.namespace, columns, keys, op=folded.ops, mode=Mode.SYNC, unset=unset, whole=whole, open=batch.open
    )


def _logged(batch: pa.RecordBatch, plain: bool) -> pa.RecordBatch:
    columns = shaped(batch, plain=plain)
    metadata = columns.schema.metadata
    if not plain and metadata[b"own"].decode() != _PREFIX:
        taken = ", ".join(_PREFIX + name for name in OWN if _PREFIX + name in columns.schema.names)
        raise NotReady(
            f"{namespace_of(batch)} has a field called {taken}, as a column of the change log is called; rename it on "
            "its way: rename({…}), or write the documents alone: plain = true"
        )
    names = [f.name for f in columns.schema if not pa.types.is_null(f.type)]
    made = _carried(columns.select(names), namespace_of(batch), keys_of(batch))
    return made.replace_schema_metadata(metadata)


def _carried(columns: pa.RecordBatch, namespace: str, keys: Sequence[str]) -> pa.RecordBatch:
    """Convert columns to the types of a lake table.  `Rejected` names a row with a value that cannot be converted."""
    arrays = []
    for n, column in enumerate(columns.columns):
        try:
            arrays.append(carried(column))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise rejected(columns, n, carrier(column.type), namespace, keys, error) from None
    return pa.RecordBatch.from_arrays(arrays, names=columns.schema.names)


def _streams(
    name: str, formed: Iterable[tuple[pa.RecordBatch, tuple[int, int]]], share: Share, *, state: bool
) -> Iterator[bytes]:
    """Encode each batch as an Arrow stream, and enter its place and its columns into `share`."""
    at = 0
    for batch, (upserts, deletes) in formed:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(batch)
        data = sink.getvalue().to_pybytes()
        share.units.append(Unit(namespace_of(batch), name, at, len(data), batch.num_rows, upserts, deletes))
        schema = columns_of(batch).schema if state else batch.schema.remove_metadata()
        known = share.schemas.setdefault(namespace_of(batch), [])
        if schema not in known:
            known.append(schema)
        at += len(data)
        yield data


def unit_rows(store: Store, units: Iterable[Unit]) -> Iterator[pa.RecordBatch]:
    """Read the staged rows of units in order.  `Damaged` if an object is gone."""
    for unit in units:
        data = store.read(unit.object, unit.start, unit.length)
        if data is None:
            raise Damaged(
                f"{unit.object}, with rows of {unit.namespace} that are not in their table yet, was removed by another "
                "program; `tailrace offset delete` has everything delivered again",
                where=unit.object,
            )
        with pa.ipc.open_stream(data) as stream:
            yield from stream


def discard(store: Store, units: Iterable[Unit]) -> None:
    """Remove the objects of units.  One that cannot be removed now is left to `tidy`."""
    for name in sorted({unit.object for unit in units}):
        try:
            store.remove(name)
        except OSError as error:
            _log.warning("%s is not removed yet: %s", name, error)


def tidy(store: Store, kept: Iterable[str]) -> None:
    """Remove the objects that are older than `ORPHANED_SECONDS` and not among `kept`."""
    before, needed = int(time.time()) - ORPHANED_SECONDS, set(kept)
    for last in store.names(STAGING):
        name, made = f"{STAGING}/{last}", _NAME.fullmatch(last)
        if made is not None and name not in needed and int(made[1], 16) < before:
            store.remove(name)


def command_row(schema: pa.Schema, command: str) -> pa.RecordBatch:
    """A row of a change log for a command, which concerns the whole namespace."""
    row = {name: command if name == _PREFIX + OP else None for name in schema.names}
    return pa.RecordBatch.from_pylist([row], schema)
