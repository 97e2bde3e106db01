"""Columns: rows with other fields, other keys or another namespace, the rest as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows import columns_of, keys_of, namespace_of
from tailrace.errors import BadInput


def field_names(batch: pa.RecordBatch) -> list[str]:
    """The names of the documents' fields."""
    return [field.name for field in batch.schema.field("data").type]


def with_fields(batch: pa.RecordBatch, chosen: Sequence[tuple[int, str]], keys: Sequence[str]) -> pa.RecordBatch:
    """The same rows with some of their fields, each by its old place and its new name."""
    columns = columns_of(batch)
    fields = [columns.schema.field(place).with_name(name) for place, name in chosen]
    data = structs([columns.column(place) for place, _ in chosen], fields, batch.num_rows)
    return with_data(batch, data, keys, unset=_moved(batch, [place for place, _ in chosen]))


def structs(arrays: Sequence[pa.Array[Any]], fields: Sequence[pa.Field[Any]], count: int) -> pa.Array[Any]:
    """Columns as one of structs; Arrow does not know how many rows there are in no columns."""
    if not arrays:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(list(arrays), fields=list(fields))


def with_data(
    batch: pa.RecordBatch,
    data: pa.Array[Any],
    keys: Sequence[str],
    *,
    key: pa.Array[Any] | None = None,
    unset: pa.Array[Any] | None = None,
) -> pa.RecordBatch:
    """The same rows with other documents, and the same record keys unless others are given."""
    arrays = [batch.column("timestamp"), batch.column("attributes"), batch.column("key") if key is None else key, data]
    fields = [*(batch.schema.field(name) for name in ("timestamp", "attributes", "key")), pa.field("data", data.type)]
    if unset is not None and unset.null_count < len(unset):
        arrays.append(unset)
        fields.append(pa.field("unset", pa.binary()))
    metadata = {**batch.schema.metadata, b"keys": msgspec.json.encode(list(keys))}
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def with_namespace(batch: pa.RecordBatch, namespace: str) -> pa.RecordBatch:
    """The same rows in another namespace; their record keys say so too."""
    old, new = namespace_of(batch).encode() + b"\x00", namespace.encode() + b"\x00"
    key = pc.replace_substring(batch.column("key"), old, new, max_replacements=1)  # binary_slice fails on slices
    moved = batch.set_column(batch.schema.get_field_index("key"), batch.schema.field("key"), key)
    return moved.replace_schema_metadata({**batch.schema.metadata, b"namespace": namespace.encode()})


def check_id_kept(what: str, batch: pa.RecordBatch, names: Sequence[str]) -> None:
    """Refuse to lose a part of the id: a writer could not find the document again."""
    for key in keys_of(batch):
        if key not in names:
            raise BadInput(
                f"{what} would take away {key!r}, which is part of the id of {namespace_of(batch)!r}: "
                "a writer could not find the document again; keep it, or rename it"
            )


def unset_places(batch: pa.RecordBatch, place: int) -> pa.Array[Any]:
    """For each row, whether the field at this place is unset."""
    if "unset" not in batch.schema.names:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    encoded = batch.column("unset").dictionary_encode()
    flags = [bool(bits[place // 8] >> place % 8 & 1) for bits in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(flags, pa.bool_()).take(encoded.indices), False)


def _moved(batch: pa.RecordBatch, places: Sequence[int]) -> pa.Array[Any] | None:
    """The bitmaps of unset fields, for fields that have moved: there are few different ones."""
    if "unset" not in batch.schema.names:
        return None
    encoded = batch.column("unset").dictionary_encode()
    return pa.array([_bits(old, places) for old in encoded.dictionary.to_pylist()], pa.binary()).take(encoded.indices)


def _bits(old: bytes, places: Sequence[int]) -> bytes | None:
    return bitmap([bool(old[place // 8] >> place % 8 & 1) for place in places])


def bitmap(missing: Sequence[bool]) -> bytes | None:
    """Which fields are unset, as it is kept with a row; None if all were sent."""
    bits = bytearray((len(missing) + 7) // 8)
    for n, is_missing in enumerate(missing):
        bits[n // 8] |= is_missing << n % 8
    return bytes(bits) if any(missing) else None
