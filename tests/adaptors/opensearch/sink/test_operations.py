"""Operations made of rows, without a server."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink import operations
from tailrace.adaptors.opensearch.sink.operations import units
from tailrace.adaptors.rows.provenance import placed
from tests.adaptors.opensearch.place import rows


@pytest.mark.parametrize("size", [1, operations.UNIT_BYTES])
def test_rows_without_a_key_that_a_function_makes_of_one_have_ids_of_their_own(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one unit and in two; and the same ids when the share is made again."""
    monkeypatch.setattr(operations, "UNIT_BYTES", size)
    first = placed(rows({"a": [1, 2]}, ()), 3, pa.array([7, 7], pa.int64()))
    second = placed(rows({"a": [3]}, ()), 3, pa.array([7], pa.int64()))
    for _ in range(2):
        made = [one for unit in units([first, second], SearchSink(uri="http://h")) for one in unit.operations()]
        assert [(id, document) for id, _, document in made] == [
            ("3-7", b'{"a":1}'),
            ("3-7-1", b'{"a":2}'),
            ("3-7-2", b'{"a":3}'),
        ]
