"""What Lambda does between a table's stream and a function: it reads the stream and passes its JSON on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tailrace.storage.aws.dynamodb import DynamoTable


def records_of(table: DynamoTable, page: int = 1000) -> list[dict[str, Any]]:
    """Everything in a table's stream, record by record, as the server wrote it into its answers."""
    changes, answers = table.changes(), []
    table._streams.meta.events.register_first(  # type: ignore[union-attr]
        "before-parse.dynamodb-streams.GetRecords", lambda response_dict, **_: answers.append(response_dict["body"])
    )
    for shard in changes.shards():
        iterator: str | None = changes.iterator(shard.id, "TRIM_HORIZON")
        while iterator is not None:
            read = changes.read(iterator, page)
            iterator = read.next if read.changes else None
    arn = {"eventSourceARN": changes.stream, "eventSource": "aws:dynamodb"}
    return [record | arn for answer in answers for record in json.loads(answer)["Records"]]


def batches(records: list[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    """Events with so many records each."""
    for begin in range(0, len(records), size):
        yield {"Records": records[begin : begin + size]}
