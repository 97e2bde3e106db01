"""The changes of a table in DynamoDB, by DynamoDB Streams."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING, Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from tailrace.errors import BadInput, BadSetting, HomeError, NotThere, TailraceError
from tailrace.storage.aws import translated
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.tables import Item, Key
from tailrace.storage.wire import item_from_wire

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

VIEWS: dict[View, str] = {
    "keys": "KEYS_ONLY",
    "new": "NEW_IMAGE",
    "old": "OLD_IMAGE",
    "both": "NEW_AND_OLD_IMAGES",
}
MAX_READ = 1000
GONE = {
    "ExpiredIteratorException": "the iterator has expired; make another after the last sequence number read",
    "ResourceNotFoundException": "the shard is not in the stream, or has been trimmed",
    "TrimmedDataAccessException": "what was there has been trimmed; changes are kept for 24 hours",
}


class DynamoChanges:
    """The `Changes` of one table.  The clients come from `aws.connect`, `home` is the URL that messages name."""

    def __init__(self, streams: DynamoDBStreamsClient, dynamodb: DynamoDBClient, table: str, *, home: str = "") -> None:
        self._streams, self._dynamodb, self._table, self._home = streams, dynamodb, table, home
        self._arn = ""
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        """How often each operation was asked for."""

    def capture(self, view: View, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Switch capture on and wait until it is; does nothing if the table has it already, with the same view."""
        wanted = stream_of(view)
        stream = self._described().get("StreamSpecification", {})
        if not stream.get("StreamEnabled"):
            self._ask(self._dynamodb, "UpdateTable", TableName=self._table, StreamSpecification=wanted)
            while not self._captures():
                sleep(0.5)
        elif stream["StreamViewType"] != wanted["StreamViewType"]:
            raise BadSetting(
                f"table {self._table!r} captures {stream['StreamViewType']}, not {view!r}; that cannot be changed but "
                "by switching its stream off, which loses the changes in it"
            )

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        found: list[Shard] = []
        after: dict[str, Any] = {}
        self._find()
        while True:
            stream = self._ask(self._streams, "DescribeStream", StreamArn=self._arn, **after)["StreamDescription"]
            found += map(_shard, stream["Shards"])
            if not stream.get("LastEvaluatedShardId"):
                return _parents_first(found)
            after = {"ExclusiveStartShardId": stream["LastEvaluatedShardId"]}

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard, valid for 15 minutes."""
        if not self._arn:
            self._find()
        request: dict[str, Any] = {"StreamArn": self._arn, "ShardId": shard, "ShardIteratorType": start}
        if (start in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")) != (sequence is not None and sequence.isdigit()):
            raise BadInput(f"{start} with sequence {sequence!r}: only AT_ and AFTER_SEQUENCE_NUMBER take one, and must")
        if sequence is not None:
            request["SequenceNumber"] = sequence
        return str(self._ask(self._streams, "GetShardIterator", **request)["ShardIterator"])

    def read(self, iterator: str, limit: int = MAX_READ) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
        answer = self._ask(self._streams, "GetRecords", ShardIterator=iterator, Limit=min(limit, MAX_READ))
        return Read([_change(record) for record in answer["Records"]], answer.get("NextShardIterator"))

    def _find(self) -> None:
        arn = self._described().get("LatestStreamArn")
        if not arn:
            raise NotThere(f"table {self._table!r} keeps no changes; capture(view) switches that on")
        self._arn = arn

    def _captures(self) -> bool:
        table = self._described()
        if table["TableStatus"] != "ACTIVE" or not table.get("LatestStreamArn"):
            return False
        stream = self._ask(self._streams, "DescribeStream", StreamArn=table["LatestStreamArn"])["StreamDescription"]
        return bool(stream["StreamStatus"] == "ENABLED")

    def _described(self) -> Any:
        return self._ask(self._dynamodb, "DescribeTable", TableName=self._table)["Table"]

    def _ask(self, client: DynamoDBStreamsClient | DynamoDBClient, operation: str, **parameters: Any) -> Any:
        with self._lock:
            self.requests[operation] += 1
        try:
            return getattr(client, xform_name(operation))(**parameters)
        except (BotoCoreError, ClientError) as error:
            gone = _gone(error, operation) if client is self._streams else None
            failure = gone or translated(error, operation, self._table, self._home)
            raise failure from (None if isinstance(failure, HomeError) else error)


def stream_of(view: View) -> dict[str, Any]:
    """What a table is told to capture."""
    if view not in VIEWS:
        raise BadSetting.unknown("a capture", view, VIEWS)
    return {"StreamEnabled": True, "StreamViewType": VIEWS[view]}


def _gone(error: BotoCoreError | ClientError, operation: str) -> TailraceError | None:
    """What a stream's own refusals mean."""
    if not isinstance(error, ClientError):
        return None
    code = error.response["Error"]["Code"]
    if code == "ValidationException" and operation == "GetShardIterator":
        return NotThere(f"{operation}: the sequence number is not in the shard, or has been trimmed")
    return NotThere(f"{operation}: {GONE[code]}") if code in GONE else None


def _shard(described: Any) -> Shard:
    numbers = described.get("SequenceNumberRange", {})
    first, last = numbers.get("StartingSequenceNumber", "0"), numbers.get("EndingSequenceNumber")
    return Shard(described["ShardId"], described.get("ParentShardId"), first, last)


def _parents_first(shards: list[Shard]) -> list[Shard]:
    parents = {shard.id: shard.parent for shard in shards}

    def depth(shard: Shard) -> int:
        generations, parent = 0, shard.parent
        while parent in parents:
            generations, parent = generations + 1, parents[parent]
        return generations

    return sorted(shards, key=depth)


def _change(record: Any) -> Change:
    what = record["dynamodb"]
    key = item_from_wire(what["Keys"])
    return Change(
        id=record["eventID"],
        kind=record["eventName"],
        sequence=what["SequenceNumber"],
        created_at=what["ApproximateCreationDateTime"].astimezone(UTC),
        key=Key(key["p"], key["i"]),
        new=_image(what, "NewImage"),
        old=_image(what, "OldImage"),
    )


def _image(what: Any, name: str) -> Item | None:
    return item_from_wire(what[name]) if what.get(name) else None
