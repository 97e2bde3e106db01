"""Copying: reads a table in the segments of a parallel scan.

The reads are strongly consistent, so a segment sees each item with all changes before the position in the stream that
was stored before the copy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Piece
from tailrace.adaptors.dynamodb.pace import Pace
from tailrace.adaptors.dynamodb.service import DynamoService, TableDescription
from tailrace.adaptors.dynamodb.settings import DynamoSource
from tailrace.adaptors.dynamodb.source.items import copied, rows
from tailrace.errors import NotThere
from tailrace.log.record import Mode
from tailrace.storage.aws.wire import item_from_wire

MAX_SEGMENTS = 10_000
FEWEST_OF_MANY = 8
"""The fewest segments of a table that does not fit into one page: DynamoDB's count of its items is some hours old."""


def pieces(service: DynamoService, table: TableDescription, rows: int) -> list[Piece]:
    """Cut a table into segments of about `rows` items."""
    segments = -(-table.items // rows)
    if segments < FEWEST_OF_MANY and not _fits_a_page(service, table):
        segments = FEWEST_OF_MANY
    segments = max(1, min(segments, MAX_SEGMENTS))
    about = table.items // segments
    return [Piece(table.name, {"segment": n, "of": segments, "id": table.id}, about) for n in range(segments)]


def _fits_a_page(service: DynamoService, table: TableDescription) -> bool:
    def ask() -> Any:
        return service.ask(
            "Scan", TableName=table.name, ProjectionExpression="#h", ExpressionAttributeNames={"#h": table.schema.hash}
        )

    return "LastEvaluatedKey" not in service.insist(ask, f"planning the copy of {table.name}")


def read(service: DynamoService, settings: DynamoSource, piece: Piece) -> Iterator[pa.RecordBatch]:
    """Yield the items of a segment as rows; nothing if the table is gone or was created again.

    The follower finds such a table by itself."""
    try:
        table = service.describe(piece.namespace)
        pages = _pages(service, settings, piece) if table.id == piece.bounds["id"] else iter(())
        for items in pages:
            now = time.time_ns() // 1_000_000
            changes = [copied(table.schema, item, now) for item in map(item_from_wire, items)]
            yield rows(piece.namespace, table.schema, settings.shape, changes, Mode.COPY)
    except NotThere:
        return


def _pages(service: DynamoService, settings: DynamoSource, piece: Piece) -> Iterator[list[Any]]:
    """Yield the items of a segment page by page, at least one page, no faster than the settings allow."""
    pace, after, first = Pace(settings.read_units), dict[str, Any](), True
    while True:

        def ask() -> Any:
            return service.ask(
                "Scan",
                TableName=piece.namespace,
                Segment=piece.bounds["segment"],
                TotalSegments=piece.bounds["of"],
                ConsistentRead=True,
                ReturnConsumedCapacity="TOTAL",
                **after,  # noqa: B023
            )

        answer = service.insist(ask, f"copying {piece.namespace}")
        if answer["Items"] or first:
            yield answer["Items"]
        first = False
        if not answer.get("LastEvaluatedKey"):
            return
        after = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        pace.used(answer.get("ConsumedCapacity") or {})
