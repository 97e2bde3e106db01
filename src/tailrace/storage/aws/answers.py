"""Answers: checks that a response from DynamoDB is complete, before botocore reads it.

botocore takes a 200 whose connection closed inside its headers, or before its body, for an answer without content:
after GetItem that would be "there is no such item".  DynamoDB always sends a JSON object (`{}` for an absent item),
its length and its crc.  Anything else is no answer, and it is unknown whether the request has happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import msgspec
from botocore.exceptions import BotoCoreError

REQUIRED = {
    "CreateTable": "TableDescription",
    "DescribeStream": "StreamDescription",
    "DescribeTable": "Table",
    "GetRecords": "Records",
    "GetShardIterator": "ShardIterator",
    "Query": "Items",
    "Scan": "Items",
    "UpdateItem": "Attributes",
    "UpdateTable": "TableDescription",
}
"""The fields that an answer to each of these operations always has, in the form tailrace asks for."""

COMPLAINTS = frozenset({"__type", "code", "error", "errors", "message", "Message"})
"""Fields of the error messages that gateways send; no answer of DynamoDB has a field of such a name."""


class NotWhole(BotoCoreError):
    """An answer was cut off or altered on its way, or does not come from DynamoDB."""

    fmt = "the answer, with status {status}, cannot be used: {why}"


def check_whole(response_dict: Mapping[str, Any], operation_model: Any, **_: Any) -> None:
    """Raise `NotWhole` unless this is a whole answer to this operation; for botocore's event `before-parse`."""
    status, body = response_dict["status_code"], response_dict["body"]
    why = _damage(body, response_dict["headers"]) or _strangeness(body, status, operation_model)
    if why is not None:
        raise NotWhole(status=status, why=why)


def _damage(body: bytes, headers: Mapping[str, str]) -> str | None:
    """What happened to the bytes on their way, if anything did."""
    if not body:
        return "it has no body"
    length, crc = headers.get("content-length"), headers.get("x-amz-crc32")
    if length is not None and length != str(len(body)):
        return f"it has {len(body)} bytes, not {length}"
    if crc is not None and crc != str(crc32(body)):
        return "its bytes do not match their crc"
    return None


def _strangeness(body: bytes, status: int, operation: Any) -> str | None:
    """Why this cannot be DynamoDB's answer to this operation, if it cannot: a proxy may have answered in its place."""
    try:
        body.decode()  # fields that msgspec skips below are not checked for it
        answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return "it is not a JSON object"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "it is not JSON"
    if status >= 300:
        return None if "__type" in answer else "it names no error of DynamoDB"
    if answer.keys() & COMPLAINTS:
        return "it is a complaint, in spite of its status"
    required = REQUIRED.get(operation.name)
    return f"it has no {required!r}" if required and required not in answer else None
