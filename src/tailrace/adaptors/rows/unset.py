"""Unset fields: the bitmap beside a row that says which fields the row does not have.

Bit n stands for the n-th field of `data`; a null bitmap means that the row has all of them.  A field that a row does
not have is null among the values.  The row's `whole` says what that means (see rows): in a whole document the
field is not there, in a change the field is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def is_unset(bits: bytes | None, place: int) -> bool:
    """Whether a bitmap says that the field at this place is unset."""
    return bits is not None and bool(bits[place // 8] >> place % 8 & 1)


def bitmap(missing: Sequence[bool]) -> bytes | None:
    """The bitmap of a row, by whether each field is missing; None if none is."""
    bits = sum(1 << place for place, is_missing in enumerate(missing) if is_missing)
    return from_number(bits, len(missing)) if bits else None


def from_number(bits: int, fields: int) -> bytes:
    """A bitmap for so many fields, from a number that has their bits."""
    return bits.to_bytes((fields + 7) // 8, "little")


def unset_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The bitmaps of rows, all null where the batch has none."""
    if "unset" in batch.schema.names:
        return batch.column("unset")
    return pa.nulls(batch.num_rows, pa.binary())


def whole_of(batch: pa.RecordBatch) -> pa.Array[Any]:
    """For each row, whether it is a whole document.  A batch without the column, as of earlier versions, has whole
    documents where nothing is unset."""
    complete = unset_of(batch).is_null()
    return pc.coalesce(batch.column("whole"), complete) if "whole" in batch.schema.names else complete


def left_as_they_are(batch: pa.RecordBatch) -> pa.Array[Any]:
    """The bitmaps of changes, also of those that set every field.  Null for whole documents: a field that these do not
    have is not there."""
    if "whole" not in batch.schema.names:
        return unset_of(batch)
    none = pa.scalar(from_number(0, batch.schema.field("data").type.num_fields), pa.binary())
    return pc.if_else(whole_of(batch), pa.scalar(None, pa.binary()), pc.coalesce(unset_of(batch), none))


def unset_at(unset: pa.Array[Any], place: int) -> pa.Array[Any]:
    """For each bitmap, whether the field at this place is unset."""
    return pc.fill_null(_mapped(unset, lambda bits: is_unset(bits, place), pa.bool_()), False)


def moved(unset: pa.Array[Any], places: Sequence[int]) -> pa.Array[Any]:
    """The bitmaps for a document with the fields of these places, in this order."""
    return _mapped(unset, lambda bits: bitmap([is_unset(bits, place) for place in places]), pa.binary())


def unset_names(unset: pa.Array[Any], names: Sequence[str]) -> pa.Array[Any]:
    """For each bitmap the names of the unset fields; null for a null bitmap."""
    kind = pa.list_(pa.string())
    return _mapped(unset, lambda bits: [name for n, name in enumerate(names) if is_unset(bits, n)], kind)


def _mapped(unset: pa.Array[Any], function: Callable[[bytes], Any], kind: pa.DataType) -> pa.Array[Any]:
    """A function of each bitmap, called once for each different one: there are few."""
    encoded = unset.dictionary_encode()
    return pa.array([function(bits) for bits in encoded.dictionary.to_pylist()], kind).take(encoded.indices)
