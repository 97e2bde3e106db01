"""Delivery: which messages of a range are still to be delivered, to the offset."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from tailrace.adaptors.rows import make_rows
from tailrace.log.fetched import Fetched
from tailrace.pipeline.delivery import Range, _pending
from tailrace.pipeline.offsets import Mark

TABLE, OTHER = "shop.orders", "shop.items"


def fetched(offsets: list[int], *, gaps: bool) -> Fetched:
    rows = make_rows(TABLE, pa.RecordBatch.from_pydict({"id": offsets}), ["id"])
    return Fetched(0, offsets[0], rows, pa.array(offsets, pa.int64()) if gaps else None)


@pytest.mark.parametrize("gaps", [False, True])
def test_what_is_acknowledged_is_not_delivered_again_and_nothing_else_is_passed(gaps: bool) -> None:
    offsets = [4, 6, 7, 9] if gaps else [*range(4, 10)]
    for done, end in product(range(3, 11), range(4, 12)):
        mark = Mark(3, {TABLE: done, OTHER: 8})
        left = _pending(Range(0, 4, end, mark), fetched(offsets, gaps=gaps))
        found = [n for one in left for n in one.offsets.to_pylist()]
        assert found == [n for n in offsets if n < end and mark.pending(TABLE, n)], (done, end)
