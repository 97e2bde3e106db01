"""Rows: messages of one namespace as one Arrow record batch, the form they have in the commit log.

    timestamp   when, in milliseconds        attributes   mode and op
    key         namespace, 0x00, id          data         a struct: the document's fields, typed as in the source
    unset       a bitmap of the fields that the source did not send; null: all were sent

The schema's metadata has the namespace and the names of the id's fields, so a batch says by itself what it is; and
perhaps `only`, the one writer that it is for.
See docs/formats/message.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.message import Message
from tailrace.errors import BadInput
from tailrace.log.record import Mode, Op, attributes

STAMP = pa.timestamp("ms", "UTC")
SEPARATOR, ESCAPE, NULL = b"\x1f", b"\x1b", b"\x1bN"
_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode


def make_rows(
    namespace: str,
    columns: pa.RecordBatch,
    keys: Sequence[str],
    *,
    op: Op | pa.Array[Any] = Op.INSERT,
    mode: Mode = Mode.COPY,
    timestamp: int | pa.Array[Any] = 0,
    unset: pa.Array[Any] | None = None,
) -> pa.RecordBatch:
    """Rows of a namespace from its columns.  `keys` name the fields of the id; none: all fields together are the id.

    `op` is one for all, or an array of numbers; `timestamp` one for all, or an array; `unset` as in the docstring."""
    if not columns.num_columns:  # Arrow does not know how many rows there are in no columns
        columns, keys = pa.record_batch({"": pa.nulls(0 if isinstance(op, int) else len(op))}), ()
        data = pa.array([{}] * columns.num_rows, pa.struct([]))
    else:
        data = pa.StructArray.from_arrays(columns.columns, fields=list(columns.schema))
    count = columns.num_rows
    ops = pa.repeat(pa.scalar(attributes(mode, op), pa.uint8()), count) if isinstance(op, int) else _marks(op, mode)
    stamps = pa.repeat(pa.scalar(timestamp, pa.int64()), count) if isinstance(timestamp, int) else timestamp
    arrays = [stamps.cast(pa.int64()).view(STAMP), ops, row_keys(namespace, columns, keys), data]
    fields = [
        pa.field("timestamp", STAMP, nullable=False),
        pa.field("attributes", pa.uint8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("data", data.type),
    ]
    if unset is not None and unset.null_count < len(unset):
        arrays.append(unset)
        fields.append(pa.field("unset", pa.binary()))
    metadata = {b"namespace": namespace.encode(), b"keys": _json(list(keys))}
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def _marks(ops: pa.Array[Any], mode: Mode) -> pa.Array[Any]:
    shifted = pc.shift_left(ops.cast(pa.uint8()), pa.scalar(2, pa.uint8()))
    return pc.bit_wise_or(shifted, pa.scalar(int(mode), pa.uint8()))


def row_keys(namespace: str, columns: pa.RecordBatch, keys: Sequence[str]) -> pa.Array[Any]:
    """The record key of each row: namespace, 0x00, id."""
    names = list(keys) or columns.schema.names
    for name in names:
        if name not in columns.schema.names:
            raise BadInput(f"{namespace!r} has no field {name!r}, which is part of its id")
    texts = [id_text(columns.column(name), alone=len(names) == 1) for name in names]
    ids = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, SEPARATOR)
    return pc.binary_join_element_wise(pa.scalar(namespace.encode()), ids, b"\x00")


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
"""What is an id as it is; whether it happens to be text, which differs from batch to batch, must not matter."""


def id_text(column: pa.Array[Any], *, alone: bool) -> pa.Array[Any]:
    """The values of one id field as bytes; beside others, so that no two ids are written alike."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if any(kind(column.type) for kind in _BYTES):
        text = column.cast(pa.binary())
    else:
        try:
            text = column.cast(pa.string()).cast(pa.binary())
        except pa.ArrowNotImplementedError:  # of lists, structs and the like
            text = pa.array([None if v is None else _json(v) for v in column.to_pylist()], pa.binary())
    if not alone:
        text = pc.replace_substring(text, ESCAPE, ESCAPE + ESCAPE)
        text = pc.replace_substring(text, SEPARATOR, ESCAPE + b"S")
    return pc.fill_null(text, NULL)


def namespace_of(batch: pa.RecordBatch) -> str:
    """The namespace that a batch of rows belongs to."""
    return str(batch.schema.metadata[b"namespace"].decode())


def meant_for(batch: pa.RecordBatch, writer: str) -> pa.RecordBatch:
    """The same rows, for one writer of a pipeline alone."""
    return batch.replace_schema_metadata({**batch.schema.metadata, b"only": writer.encode()})


def is_meant_for(batch: pa.RecordBatch, writer: str) -> bool:
    """Whether rows concern a writer: they are for all, or for it."""
    only = batch.schema.metadata.get(b"only")
    return only is None or bool(only.decode() == writer)


def keys_of(batch: pa.RecordBatch) -> tuple[str, ...]:
    """The names of the fields that make up the id."""
    return tuple(msgspec.json.decode(batch.schema.metadata[b"keys"], type=list[str]))


def columns_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The documents' fields as columns."""
    return pa.RecordBatch.from_struct_array(batch.column("data"))


def ops_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The op of each row, as a number."""
    return pc.shift_right(batch.column("attributes"), pa.scalar(2, pa.uint8()))


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """Rows as messages, one by one."""
    namespace, keys = namespace_of(batch), keys_of(batch)
    skip = len(namespace.encode()) + 1
    marks, stamps = batch.column("attributes").to_pylist(), batch.column("timestamp").view(pa.int64()).to_pylist()
    rows, ids = batch.column("data").to_pylist(), batch.column("key").to_pylist()
    unset = batch.column("unset").to_pylist() if "unset" in batch.schema.names else [None] * len(ids)
    names = [f.name for f in batch.schema.field("data").type]
    for mark, stamp, row, key, missing in zip(marks, stamps, rows, ids, unset, strict=True):
        if missing is not None:
            row = {name: row[name] for n, name in enumerate(names) if not missing[n // 8] >> n % 8 & 1}
        id = key[skip:].decode(errors="surrogateescape")
        yield Message(Op(mark >> 2), namespace, id, row, stamp, Mode(mark & 3), keys)


def rows_of(messages: Iterable[Message], like: pa.Schema | None = None) -> list[pa.RecordBatch]:
    """Messages as rows again, a batch for each namespace and shape; `like` has the types their fields had before."""
    groups: dict[tuple[str, tuple[str, ...], Mode], list[Message]] = {}
    for message in messages:
        groups.setdefault((message.namespace, message.keys, message.mode), []).append(message)
    return [_grouped(namespace, keys, mode, some, like) for (namespace, keys, mode), some in groups.items()]


def _grouped(
    namespace: str, keys: tuple[str, ...], mode: Mode, messages: list[Message], like: pa.Schema | None
) -> pa.RecordBatch:
    types = {f.name: f for f in like.field("data").type} if like is not None else {}
    names = list(dict.fromkeys([*types, *(name for m in messages for name in m.data)]))
    names = [name for name in names if any(name in m.data for m in messages)]
    arrays, fields = [], []
    for name in names:
        array, field = _array(name, [m.data.get(name) for m in messages], types.get(name))
        arrays.append(array)
        fields.append(field)
    columns = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    present = [k for k in keys if k in names]
    if len(present) < len(keys):
        present = []
    return make_rows(
        namespace,
        columns,
        present,
        op=pa.array([m.op for m in messages], pa.uint8()),
        mode=mode,
        timestamp=pa.array([m.timestamp for m in messages], pa.int64()),
        unset=pa.array([_bitmap(names, m.data) for m in messages], pa.binary()),
    )


def _array(name: str, values: list[Any], was: pa.Field[Any] | None) -> tuple[pa.Array[Any], pa.Field[Any]]:
    """A field's values in the type they had, or the one they now have; of several types: as JSON text."""
    if was is not None:
        try:
            return pa.array(values, was.type), was
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    try:
        array = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array([None if v is None else _json(v).decode() for v in values], pa.json_())
    return array, pa.field(name, array.type)


def _bitmap(names: Sequence[str], data: dict[str, Any]) -> bytes | None:
    missing = [n for n, name in enumerate(names) if name not in data]
    if not missing:
        return None
    bits = bytearray((len(names) + 7) // 8)
    for n in missing:
        bits[n // 8] |= 1 << n % 8
    return bytes(bits)


def last_states(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Only the last row of each key, in order: enough for a sink that keeps the newest state of a document.

    Rows with unset fields need the ones before them: those batches are left as they are."""
    if "unset" in batch.schema.names or batch.num_rows < 2:
        return batch
    keys = batch.column("key")
    table = pa.table({"key": keys, "at": pa.arange(0, batch.num_rows)})
    if pc.count_distinct(keys).as_py() == batch.num_rows:
        return batch
    last = table.group_by("key", use_threads=False).aggregate([("at", "max")]).column("at_max").combine_chunks()
    return batch.take(pc.take(last, pc.sort_indices(last)))
