"""Operations on documents, without a server."""

from __future__ import annotations

from typing import Any

import bson
import pyarrow as pa
import pytest

from tailrace.adaptors.mongodb.sink.operations import batches
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows


def keyless(columns: dict[str, list[Any]], offsets: list[int]) -> pa.RecordBatch:
    return placed(make_rows("d.c", pa.RecordBatch.from_pydict(columns), []), 3, pa.array(offsets, pa.int64()))


@pytest.mark.parametrize("size", [1, 10**6])
def test_several_rows_of_one_message_are_several_documents(size: int) -> None:
    """A function may make several of one, also with other fields; each time they get the same ids."""
    rows = [keyless({"a": [1, 2, 3]}, [7, 7, 8]), keyless({"b": [4]}, [7])]
    found = [bson.decode(one) for _, made in batches(iter(rows), size) for one in made.take()]
    ids = {one["_id"]: one["d"].get("a", one["d"].get("b")) for one in found}
    assert ids == {"3-7": 1, "3-7-1": 2, "3-8": 3, "3-7-2": 4}
