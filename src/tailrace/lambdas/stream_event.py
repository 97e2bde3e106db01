"""Stream events: the changes of a DynamoDB table as Lambda delivers them to a function.

They have the shape of DynamoDB Streams' own records, as JSON: bytes are base64, times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.errors import BadInput, BadSetting
from tailrace.storage.aws.dynamostreams import change_of
from tailrace.storage.changes import Change


def changes_of(event: Any, table: str) -> list[Change]:
    """The changes in an event, in their order.

    Raises `BadInput` if it is no event of a DynamoDB stream, and `BadSetting` if the stream is of another table or its
    records lack the item's new image."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence):
        raise BadInput(
            "this is no event of a DynamoDB stream: it has no Records; map the table's stream to this function"
        )
    return [_change(record, table) for record in records]


def _change(record: Any, table: str) -> Change:
    if record.get("eventSource") != "aws:dynamodb":
        raise BadInput(f"a record comes from {record.get('eventSource')!r}, not from a DynamoDB stream")
    arn = str(record.get("eventSourceARN", ""))
    if arn and table_of(arn) != table:
        raise BadSetting(
            f"a record comes from the table {table_of(arn)!r}, and this function serves {table!r}: "
            "set TAILRACE_TABLE to the table whose stream is mapped"
        )
    what = record["dynamodb"]
    if record["eventName"] != "REMOVE" and "NewImage" not in what:
        raise BadSetting(
            f"the stream of table {table!r} shows {what.get('StreamViewType', 'no new images')}: "
            "it must be NEW_IMAGE or NEW_AND_OLD_IMAGES"
        )
    return change_of(record)


def table_of(arn: str) -> str:
    """The table that a stream's ARN names: arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL."""
    return arn.partition(":table/")[2].partition("/")[0]
