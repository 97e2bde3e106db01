"""Rows: messages of one namespace as one Arrow record batch, the form they have in the commit log.

    timestamp   when, in milliseconds        attributes   mode and op
    key         namespace, 0x00, id          data         a struct: the document's fields, typed as in the source
    unset       a bitmap of the fields that the row does not have; null: it has all.  See unset
    whole       whether the row is a whole document, in which a field that it does not have is not there; if not, it is
                a change, which leaves such fields as they are.  Absent or null: whole if nothing is unset
    removed     fields that are not there, nested ones too, as JSON Pointers.  See removal
    transaction, position    where the change stands in the source's log: see provenance

The schema's metadata has the namespace and the names of the id's fields, so that a batch can be read without anything
else.  It may have `only`, the one writer that the batch is for.  It has `open` where documents have no fixed set of
fields: then a whole document also lacks every field that the batch does not have as a column.

See docs/formats/message.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.provenance import places_of, with_places
from tailrace.adaptors.rows.record_key import DEFINITION, id_of, key_prefix, row_keys
from tailrace.adaptors.rows.removal import REMOVED, names_of, removed_of, take_away
from tailrace.adaptors.rows.unset import bitmap, is_unset, unset_of, whole_of
from tailrace.log.record import Mode, Op, attributes

STAMP = pa.timestamp("ms", "UTC")
MAX_NESTING = 32
"""The greatest depth of nested types that is kept.  Arrow writes a depth of 64, and a row itself adds some levels."""
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
    whole: pa.Array[Any] | None = None,
    removed: pa.Array[Any] | None = None,
    transaction: pa.Array[Any] | None = None,
    position: pa.Array[Any] | None = None,
    open: bool = False,
) -> pa.RecordBatch:
    """Make rows of a namespace from the columns of its documents.  `keys` names the fields of the id; if it is empty,
    all fields together are the id.

    `op` and `timestamp` are one value for all rows, or an array of numbers.  `unset`, `whole`, `removed` and `open` are
    as in the module's docstring.  `transaction` and `position` are numbers that order the source's changes, if the
    source has them."""
    if not columns.num_columns:  # without columns Arrow does not know the number of rows
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
    beside = {"whole": whole, "removed": removed, "transaction": transaction, "position": position}
    for name, column in beside.items():
        if column is not None:
            arrays.append(column)
            fields.append(pa.field(name, column.type))
    metadata = {b"namespace": namespace.encode(), b"keys": _json(list(keys)), **({b"open": b"1"} if open else {})}
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def _marks(ops: pa.Array[Any], mode: Mode) -> pa.Array[Any]:
    shifted = pc.shift_left(ops.cast(pa.uint8()), pa.scalar(2, pa.uint8()))
    return pc.bit_wise_or(shifted, pa.scalar(int(mode), pa.uint8()))


def definition_of(batch: pa.RecordBatch, timestamp: int) -> pa.RecordBatch:
    """Return one row with op NOOP and no document, whose schema has the columns of a namespace without rows.

    Its id is `record_key.DEFINITION`."""
    columns = columns_of(batch)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in columns.schema], schema=columns.schema)
    made = make_rows(
        namespace_of(batch), nothing, keys_of(batch), op=pa.array([Op.NOOP], pa.uint8()), timestamp=timestamp
    )
    key = pa.array([key_prefix(namespace_of(batch)) + DEFINITION], pa.binary())
    return made.set_column(2, made.schema.field(2), key).replace_schema_metadata(batch.schema.metadata)


def namespace_of(batch: pa.RecordBatch) -> str:
    """The namespace of a batch of rows."""
    return str(batch.schema.metadata[b"namespace"].decode())


def meant_for(batch: pa.RecordBatch, writer: str) -> pa.RecordBatch:
    """Mark rows as meant for only one writer of the pipeline."""
    return batch.replace_schema_metadata({**batch.schema.metadata, b"only": writer.encode()})


def is_meant_for(batch: pa.RecordBatch, writer: str) -> bool:
    """Whether rows are meant for this writer: for all writers, or only for it."""
    only = batch.schema.metadata.get(b"only")
    return only is None or bool(only.decode() == writer)


def keys_of(batch: pa.RecordBatch) -> tuple[str, ...]:
    """The names of the fields that make up the id of the documents in a batch."""
    return tuple(msgspec.json.decode(batch.schema.metadata[b"keys"], type=list[str]))


def is_open(schema: pa.Schema) -> bool:
    """Whether the documents in a batch have no fixed set of fields."""
    return b"open" in (schema.metadata or {})


def columns_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The fields of the documents in a batch as columns."""
    return pa.RecordBatch.from_struct_array(batch.column("data"))


def ops_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The op of each row, as a number."""
    return pc.shift_right(batch.column("attributes"), pa.scalar(2, pa.uint8()))


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """Yield rows as messages."""
    namespace, keys = namespace_of(batch), keys_of(batch)
    marks, stamps = batch.column("attributes").to_pylist(), batch.column("timestamp").view(pa.int64()).to_pylist()
    rows, ids = batch.column("data").to_pylist(), batch.column("key").to_pylist()
    unset = unset_of(batch).to_pylist()
    names, places = [f.name for f in batch.schema.field("data").type], places_of(batch)
    beside = zip(whole_of(batch).to_pylist(), removed_of(batch), places, strict=True)
    for mark, stamp, row, key, missing, rest in zip(marks, stamps, rows, ids, unset, beside, strict=True):
        whole, removed, place = rest
        if missing is not None:
            row = {name: row[name] for n, name in enumerate(names) if not is_unset(missing, n)}
        id = id_of(key, namespace).decode(errors="surrogateescape")
        take_away(row, removed)
        yield Message(Op(mark >> 2), namespace, id, row, stamp, Mode(mark & 3), keys, whole, tuple(removed), place)


def rows_of(messages: Iterable[Message], like: pa.Schema | None = None, *, open: bool = False) -> list[pa.RecordBatch]:
    """Make rows of messages, a batch for each namespace, key and mode.  `like` is the schema that the messages had as
    rows before: their fields keep its types, and they stay `open` if they were."""
    open = open or (like is not None and is_open(like))
    groups: dict[tuple[str, tuple[str, ...], Mode], list[Message]] = {}
    for message in messages:
        groups.setdefault((message.namespace, message.keys, message.mode), []).append(message)
    return [_grouped(namespace, keys, mode, some, like, open) for (namespace, keys, mode), some in groups.items()]


def _grouped(
    namespace: str, keys: tuple[str, ...], mode: Mode, messages: list[Message], like: pa.Schema | None, open: bool
) -> pa.RecordBatch:
    types = {f.name: f for f in like.field("data").type} if like is not None else {}
    taken = {name for m in messages for name, *nested in map(names_of, m.removed) if not nested}
    names = list(dict.fromkeys([*types, *(name for m in messages for name in m.data), *sorted(taken)]))
    names = [name for name in names if name in taken or any(name in m.data for m in messages)]
    arrays, fields = [], []
    for name in names:
        array, field = _array(name, [m.data.get(name) for m in messages], types.get(name))
        arrays.append(array)
        fields.append(field)
    columns = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    present = [k for k in keys if k in names]
    if len(present) < len(keys):
        present = []
    unset = pa.array([bitmap([name not in m.data for name in names]) for m in messages], pa.binary())
    wholes, removed = [m.whole for m in messages], [list(m.removed) for m in messages]
    rows = make_rows(
        namespace,
        columns,
        present,
        op=pa.array([m.op for m in messages], pa.uint8()),
        mode=mode,
        timestamp=pa.array([m.timestamp for m in messages], pa.int64()),
        unset=unset,
        whole=None if wholes == unset.is_null().to_pylist() else pa.array(wholes, pa.bool_()),
        removed=pa.array(removed, REMOVED) if any(removed) else None,
        open=open,
    )
    return with_places(rows, [m.place for m in messages])


def nesting(kind: pa.DataType) -> int:
    """The depth of a field's type: 1 for a type without types in it."""
    depth, inner = 0, [kind]
    while inner:
        depth += 1
        inner = [one.field(n).type for one in inner for n in range(one.num_fields)]
    return depth


def _array(name: str, values: list[Any], was: pa.Field[Any] | None) -> tuple[pa.Array[Any], pa.Field[Any]]:
    """The values of a field in the type that it had before, or else in the type that Arrow infers.  Values of several
    types, or nested too deeply for Arrow, become JSON text."""
    if was is not None:
        try:
            return pa.array(values, was.type), was
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    array = None
    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        array = pa.array(values)
    if array is None or nesting(array.type) > MAX_NESTING:
        array = pa.array([None if v is None else _json(v).decode() for v in values], pa.json_())
    return array, pa.field(name, array.type)
