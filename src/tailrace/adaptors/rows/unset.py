"""Unset fields: the bitmap beside a row that says which fields the row does not have.

Bit n stands for the n-th field of `data`; a null bitmap means that the row has all fields.  A field that the row does
not have is null in `data`.  The row's `whole` says what that means (see rows): a whole document does not have the
field, a change leaves the field as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def is_unset(bits: bytes | None, place: int) -> bool:
    """Whether a bitmap says that the field with this number is unset."""
    return bits is not None and bool(bits[place // 8] >> place % 8 & 1)


def bitmap(missing: Sequence[bool]) -> bytes | None:
    """Return the bitmap of a row, given for each field whether it is missing; None if no field is."""
    bits = sum(1 << place for place, is_missing in enumerate(missing) if is_missing)
    return from_number(bits, len(missing)) if bits else None


def from_number(bits: int, fields: int) -> bytes:
    """Return the bitmap for `fields` fields from a number with the same bits."""
    return bits.to_bytes((fields + 7) // 8, "little")


def unset_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The bitmaps of all rows; all null if the batch has no such column."""
    if "unset" in batch.schema.names:
        return batch.column("unset")
    return pa.nulls(batch.num_rows, pa.binary())


def whole_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """For each row, whether it is a whole document.  In a batch without the column `whole`, as earlier versions wrote
    it, a row is whole if none of its fields is unset."""
    complete = unset_of(batch).is_null()
    return pc.coalesce(batch.column("whole"), complete) if "whole" in batch.schema.names else complete


def left_as_they_are(batch: pa.RecordBatch) -> pa.Array[Any]:
    """For each change, the bitmap of the fields that it leaves as they are, even if it sets every field.  Null for a
    whole document."""
    if "whole" not in batch.schema.names:
        return unset_of(batch)
    none = pa.scalar(from_number(0, batch.schema.field("data").type.num_fields), pa.binary())
    return pc.if_else(whole_of(batch), pa.scalar(None, pa.binary()), pc.coalesce(unset_of(batch), none))


def unset_at(unset: pa.Array[Any], place: int) -> pa.Array[Any]:
    """For each bitmap, whether the field with this number is unset."""
    return pc.fill_null(_mapped(unset, lambda bits: is_unset(bits, place), pa.bool_()), False)


def moved(unset: pa.Array[Any], places: Sequence[int]) -> pa.Array[Any]:
    """The bitmaps for documents that have the fields with these numbers, in this order."""
    return _mapped(unset, lambda bits: bitmap([is_unset(bits, place) for place in places]), pa.binary())


def unset_names(unset: pa.Array[Any], names: Sequence[str]) -> pa.Array[Any]:
    """For each bitmap, the names of the unset fields; null for a null bitmap."""
    kind = pa.list_(pa.string())
    return _mapped(unset, lambda bits: [name for n, name in enumerate(names) if is_unset(bits, n)], kind)


def _mapped(unset: pa.Array[Any], function: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array[Any]:
    """Apply a function to each bitmap.  It is called only once for each distinct bitmap, because there are few."""
    encoded = unset.dictionary_encode()
    return pa.array([function(bits) for bits in encoded.dictionary.to_pylist()], kind).take(encoded.indices)
