"""Answers to bulk requests, without a server."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink.bulk import Bulk, Operation
from tailrace.adaptors.opensearch.sink.operations import Unit
from tailrace.errors import Rejected


class Cluster:
    """Refuses each operation for one reason."""

    where = "http://h"

    def __init__(self, kind: str, reason: str) -> None:
        self._error = {"type": kind, "reason": reason}

    def ask(self, *given: Any, **params: Any) -> Any:
        return {"errors": True, "items": [{"index": {"_id": "7", "status": 400, "error": self._error}}]}


@pytest.mark.parametrize(
    ("kind", "reason", "advice"),
    [
        ("illegal_argument_exception", "Limit of total fields [1000] has been exceeded", "total_fields.limit"),
        ("illegal_argument_exception", "Limit of mapping depth [20] has been exceeded", "depth.limit"),
        ("mapper_parsing_exception", "failed to parse field [n] of type [long]", "type of the field has changed"),
        ("version_conflict", "something else", "something else$"),
    ],
)
def test_advice_for_a_row_that_an_index_refuses(kind: str, reason: str, advice: str) -> None:
    bulk = Bulk(cast(Any, Cluster(kind, reason)), SearchSink(uri="http://h"))
    with pytest.raises(Rejected, match=advice) as refused:
        bulk.write(iter([Operation(Unit("orders", "shop", {}), "7", None, b"{}")]), 1, lambda: None)
    assert ("has changed" in str(refused.value)) == (kind == "mapper_parsing_exception")
