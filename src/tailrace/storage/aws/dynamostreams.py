"""The changes of a table in DynamoDB, by DynamoDB Streams."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Struct

from tailrace.errors import (
    BadInput,
    BadSetting,
    HomeError,
    IteratorExpired,
    NotThere,
    TailraceError,
    Trimmed,
    UnknownTable,
)
from tailrace.storage.aws.session import translated
from tailrace.storage.aws.wire import item_from_wire
from tailrace.storage.changes import Change, Read, Shard, Start, View
from tailrace.storage.keys import HOME, KeySchema
from tailrace.storage.tables import Item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

VIEWS: dict[View, str] = {
    "keys": "KEYS_ONLY",
    "new": "NEW_IMAGE",
    "old": "OLD_IMAGE",
    "both": "NEW_AND_OLD_IMAGES",
}
MAX_CHANGES_PER_READ = 1000
GONE: dict[str, tuple[type[NotThere], str]] = {
    "ExpiredIteratorException": (
        IteratorExpired,
        "the iterator has expired; make another after the last sequence number read",
    ),
    "ResourceNotFoundException": (NotThere, "the shard is not in the stream, or has been trimmed"),
    "TrimmedDataAccessException": (Trimmed, "these changes have been trimmed; changes are kept for 24 hours"),
}


class DynamoChanges:
    """The `Changes` of one table.  The clients come from `aws.connect`, `home` is the URL that messages name."""

    def __init__(
        self,
        streams: DynamoDBStreamsClient,
        dynamodb: DynamoDBClient,
        table: str,
        *,
        home: str = "",
        schema: KeySchema = HOME,
    ) -> None:
        self._streams, self._dynamodb, self._table, self._home, self._schema = streams, dynamodb, table, home, schema
        streams.meta.events.register(
            "before-parse.dynamodb-streams.GetRecords", _parse_records, unique_id="tailrace-records"
        )
        self._arn = ""
        self._time = 0.0
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        """How often each operation was called."""

    def capture(self, view: View, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Switch capture on and wait until it is on; does nothing if the table captures the same view already."""
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

    @property
    def stream(self) -> str:
        """The ARN of the stream that the table had when this was first called."""
        if not self._arn:
            self._find()
        return self._arn

    def current(self) -> str | None:
        """The ARN of the stream that the table has now; None if capture is off; `UnknownTable` if it is gone."""
        try:
            table = self._described()
        except HomeError as error:
            if _code(error.__context__) != "ResourceNotFoundException":
                raise
            raise UnknownTable(f"there is no table {self._table!r} any more; its stream went with it") from None
        enabled = table.get("StreamSpecification", {}).get("StreamEnabled")
        return str(table["LatestStreamArn"]) if enabled else None

    def time(self) -> float:
        """The time of DynamoDB's clock in its last answer, in whole seconds."""
        if not self._time:
            self._described()
        return self._time

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """Always "LATEST": DynamoDB does not tell the last sequence number of a shard."""
        return "LATEST", None

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""
        found: list[Shard] = []
        after: dict[str, Any] = {}
        arn = self.stream
        while True:
            stream = self._ask(self._streams, "DescribeStream", StreamArn=arn, **after)["StreamDescription"]
            found += map(_shard, stream["Shards"])
            if not stream.get("LastEvaluatedShardId"):
                return _parents_first(found)
            after = {"ExclusiveStartShardId": stream["LastEvaluatedShardId"]}

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard, valid for 15 minutes."""
        request: dict[str, Any] = {"StreamArn": self.stream, "ShardId": shard, "ShardIteratorType": start}
        if (start in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")) != (sequence is not None and sequence.isdigit()):
            raise BadInput(f"{start} with sequence {sequence!r}: only AT_ and AFTER_SEQUENCE_NUMBER take one, and must")
        if sequence is not None:
            request["SequenceNumber"] = sequence
        return str(self._ask(self._streams, "GetShardIterator", **request)["ShardIterator"])

    def read(self, iterator: str, limit: int = MAX_CHANGES_PER_READ) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
        answer = self._ask(self._streams, "GetRecords", ShardIterator=iterator, Limit=min(limit, MAX_CHANGES_PER_READ))
        return Read(changes_of(answer["Records"], self._schema), answer.get("NextShardIterator"))

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
            answer = getattr(client, xform_name(operation))(**parameters)
            self._time = _date(answer) or self._time
            return answer
        except (BotoCoreError, ClientError) as error:
            gone = _gone(error, operation) if client is self._streams else None
            failure = gone or translated(error, operation, self._table, self._home)
            raise failure from (None if isinstance(failure, HomeError) else error)


def stream_of(view: View) -> dict[str, Any]:
    """The setting that switches a table's capture on."""
    if view not in VIEWS:
        raise BadSetting.unknown("a capture", view, VIEWS)
    return {"StreamEnabled": True, "StreamViewType": VIEWS[view]}


def view_of(specification: Any) -> View | None:
    """What a table captures, by its description."""
    if not specification.get("StreamEnabled"):
        return None
    return next(view for view, name in VIEWS.items() if name == specification["StreamViewType"])


def _gone(error: BotoCoreError | ClientError, operation: str) -> TailraceError | None:
    """The tailrace error for an error that the stream answered."""
    code = _code(error)
    if code == "ValidationException" and operation == "GetShardIterator":
        return Trimmed(f"{operation}: the sequence number is not in the shard, or has been trimmed")
    if code not in GONE:
        return None
    kind, why = GONE[code]
    return kind(f"{operation}: {why}")


def _code(error: BaseException | None) -> str:
    """The code of an error that AWS answered; "" for any other error."""
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else ""


def _date(answer: Any) -> float | None:
    """When the service answered, by its own clock."""
    stamp = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    return parsedate_to_datetime(stamp).timestamp() if stamp else None


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


class _ChangeRecord(Struct, gc=False):
    """The part of a record that describes the change."""

    Keys: dict[str, dict[str, Any]]
    SequenceNumber: str
    ApproximateCreationDateTime: float
    NewImage: dict[str, dict[str, Any]] | None = None
    OldImage: dict[str, dict[str, Any]] | None = None


class _Record(Struct, gc=False):
    """The fields of a record that tailrace uses."""

    eventID: str
    eventName: Literal["INSERT", "MODIFY", "REMOVE"]
    dynamodb: _ChangeRecord
    eventVersion: str = "1.1"

    def change(self, schema: KeySchema) -> Change:
        told = self.dynamodb
        return Change(
            self.eventID,
            self.eventName,
            told.SequenceNumber,
            datetime.fromtimestamp(told.ApproximateCreationDateTime, UTC),
            schema.key_of(item_from_wire(told.Keys)),
            item_from_wire(told.NewImage) if told.NewImage else None,
            item_from_wire(told.OldImage) if told.OldImage else None,
            self.eventVersion,
        )


class _RecordsAnswer(Struct, omit_defaults=True):
    Records: list[_Record]
    NextShardIterator: str | None = None


# Made here: if two threads decode a struct of structs for the first time at once, the process can crash (msgspec 0.22).
_decode_answer = msgspec.json.Decoder(_RecordsAnswer).decode


def _parse_records(response_dict: Any, customized_response_dict: Any, **_: Any) -> None:
    """Parse the records of an answer before the SDK does, which takes most of the time that reading a stream takes.

    Records of an unexpected form are left to the SDK and its error messages."""
    if response_dict["status_code"] != 200:
        return
    try:
        answer = _decode_answer(response_dict["body"])
    except msgspec.DecodeError:
        return
    customized_response_dict["Records"] = answer.Records
    response_dict["body"] = msgspec.json.encode(_RecordsAnswer([], answer.NextShardIterator))


def changes_of(records: Iterable[Any], schema: KeySchema = HOME) -> list[Change]:
    """The changes that an answer's records describe, whether the SDK has parsed them or `_parse_records`."""
    return [r.change(schema) if isinstance(r, _Record) else change_of(r, schema) for r in records]


def change_of(record: Any, schema: KeySchema = HOME) -> Change:
    """The change that a record of DynamoDB Streams describes, as the SDK returns it or as it comes in JSON."""
    what = record["dynamodb"]
    return Change(
        id=record["eventID"],
        kind=record["eventName"],
        sequence=what["SequenceNumber"],
        created_at=_time(what["ApproximateCreationDateTime"]),
        key=schema.key_of(item_from_wire(what["Keys"])),
        new=_image(what, "NewImage"),
        old=_image(what, "OldImage"),
        version=record.get("eventVersion", "1.1"),
    )


def _time(given: datetime | float) -> datetime:
    return given.astimezone(UTC) if isinstance(given, datetime) else datetime.fromtimestamp(float(given), UTC)


def _image(what: Any, name: str) -> Item | None:
    return item_from_wire(what[name]) if what.get(name) else None
