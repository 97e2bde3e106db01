"""The table of all operations, and the document that describes them."""

from __future__ import annotations

from typing import Any

from tailrace.console.api import (
    events,
    groups,
    handler_letters,
    home,
    leases,
    pipelines,
    queues,
    records,
    streams,
    topics,
)
from tailrace.console.openapi import document
from tailrace.console.operation import Call, Operation, Operations

PREFIX = "/api/v1"
NOUNS = (topics, records, groups, events, queues, leases, streams, handler_letters, pipelines, home)
_own = Operations()


@_own.get("/openapi.json", answer=dict[str, Any])
async def describe_api(call: Call) -> dict[str, Any]:
    """Return this document."""
    return DOCUMENT


OPERATIONS: tuple[Operation, ...] = (
    *_own.all,
    *(one for noun in NOUNS for one in noun.operations.all),
)
DOCUMENT = document(OPERATIONS, PREFIX)
