"""StreamService: simulated change streams over DynamoDB Streams' own protocol, on a port of this machine.

    changes = SimulatedChanges(shards=2)
    with StreamService({"users": changes}) as service:
        boto3.client("dynamodbstreams", endpoint_url=service.url, …)

No DynamoDB server for tests splits shards; this one shows whatever the test does to its `SimulatedChanges`: so real
clients meet splits, rolls, trims, expired iterators, throttling and late children.  It has the four calls of DynamoDB
Streams, and of DynamoDB itself only the calls that describe a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

import msgspec

from tailrace.errors import BadInput, IteratorExpired, NotThere, TailraceError, Throttled, Trimmed
from tailrace.storage.aws.dynamostreams import VIEWS
from tailrace.storage.aws.wire import item_to_wire, key_to_wire
from tailrace.storage.changes import Change, Changes, Shard
from tailrace.storage.keys import HOME, KeySchema

HOST = "127.0.0.1"
CODES: tuple[tuple[type[TailraceError], str], ...] = (
    (IteratorExpired, "ExpiredIteratorException"),
    (Trimmed, "TrimmedDataAccessException"),
    (NotThere, "ResourceNotFoundException"),
    (Throttled, "LimitExceededException"),
    (BadInput, "ValidationException"),
)
"""DynamoDB's name for each error; the first class that fits counts."""
NAMES = {
    "DynamoDBStreams": ("ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"),
    "DynamoDB": ("DescribeTable", "DescribeTimeToLive", "DescribeContinuousBackups", "CreateTable"),
}


class StreamService:
    """Serves the streams of some tables until `close`.  `page` is the most shards in one answer.

    A stream that is replaced stays readable; `serve` its successor under the same table."""

    def __init__(self, tables: Mapping[str, Changes], *, schema: KeySchema = HOME, page: int = 100) -> None:
        self._schema, self._page = schema, page
        self._tables: dict[str, Changes] = {}
        self._streams: dict[str, tuple[str, Changes]] = {}
        self._iterators: dict[str, Changes] = {}
        self._encoded: dict[tuple[str, str], msgspec.Raw] = {}
        """Encoded records, by stream and id: benchmarks measure a client, not this service."""
        for table, changes in tables.items():
            self.serve(table, changes)
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self._answer))
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def serve(self, table: str, changes: Changes) -> None:
        """Serve this stream as the table's present one."""
        self._tables[table] = changes
        self._streams[self.arn(table, changes.stream)] = table, changes

    def arn(self, table: str, stream: str) -> str:
        """Return the ARN of a table's stream."""
        return f"arn:aws:dynamodb:us-east-1:000000000000:table/{table}/stream/{stream}"

    def prepare(self) -> None:
        """Encode every record there is now, so that no client waits for it."""
        for _, changes in self._streams.values():
            for shard in changes.shards():
                iterator: str | None = changes.iterator(shard.id, "TRIM_HORIZON")
                while iterator is not None and (read := changes.read(iterator)).changes:
                    for change in read.changes:
                        self._record(change, changes)
                    iterator = read.next

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> StreamService:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- the requests
    def _answer(self, target: str, asked: Any) -> tuple[int, Any, float | None]:
        """Return the status, the answer, and the service's time."""
        service, _, operation = target.partition(".")
        try:
            if operation not in NAMES.get(service.partition("_")[0], ()):
                raise BadInput(f"{target!r} is not served here")
            answer, clock = getattr(self, f"_{operation}")(asked)
            return 200, answer, clock
        except _RequestRefused as refused:
            return 400, refused.answer(), None
        except TailraceError as error:
            code = next((code for kind, code in CODES if isinstance(error, kind)), "InternalServerError")
            return 500 if code == "InternalServerError" else 400, _refusal(code, str(error)), None

    def _ListStreams(self, asked: Any) -> tuple[Any, float | None]:
        wanted = asked.get("TableName")
        found = [
            {"StreamArn": arn, "TableName": table, "StreamLabel": changes.stream}
            for arn, (table, changes) in self._streams.items()
            if wanted in (None, table)
        ]
        return {"Streams": found}, None

    def _DescribeStream(self, asked: Any) -> tuple[Any, float | None]:
        table, changes = self._stream(asked["StreamArn"])
        shards = changes.shards()
        after = asked.get("ExclusiveStartShardId")
        if after is not None:
            shards = [shard for shard in shards if shard.id > after]
        page = shards[: min(self._page, asked.get("Limit", self._page))]
        more = {"LastEvaluatedShardId": page[-1].id} if len(page) < len(shards) else {}
        described = {
            "StreamArn": asked["StreamArn"],
            "StreamLabel": changes.stream,
            "StreamStatus": "ENABLED" if changes.current() == changes.stream else "DISABLED",
            "StreamViewType": _view(changes),
            "TableName": table,
            "KeySchema": self._key_schema(),
            "CreationRequestDateTime": 0,
            "Shards": [_shard(shard) for shard in page],
            **more,
        }
        return {"StreamDescription": described}, changes.time()

    def _GetShardIterator(self, asked: Any) -> tuple[Any, float | None]:
        _, changes = self._stream(asked["StreamArn"])
        made = changes.iterator(asked["ShardId"], asked["ShardIteratorType"], asked.get("SequenceNumber"))
        return {"ShardIterator": self._named(asked["StreamArn"], made, changes)}, changes.time()

    def _GetRecords(self, asked: Any) -> tuple[Any, float | None]:
        name = asked["ShardIterator"]
        if name not in self._iterators:
            raise BadInput(f"Invalid ShardIterator: {name}")
        changes, (arn, _, iterator) = self._iterators[name], name.partition("|")
        read = changes.read(iterator, asked.get("Limit", 1000))
        following = {} if read.next is None else {"NextShardIterator": self._named(arn, read.next, changes)}
        return {"Records": [self._record(change, changes) for change in read.changes], **following}, changes.time()

    def _record(self, change: Change, changes: Changes) -> msgspec.Raw:
        key = changes.stream, change.id
        if key not in self._encoded:
            self._encoded[key] = msgspec.Raw(msgspec.json.encode(self._described(change, changes)))
        return self._encoded[key]

    def _DescribeTable(self, asked: Any) -> tuple[Any, float | None]:
        name = asked["TableName"]
        changes = self._table(name)
        current, schema = changes.current(), self._schema
        kinds = {schema.hash: schema.hash_kind, **({schema.range: schema.range_kind} if schema.range else {})}
        described: dict[str, Any] = {
            "TableName": name,
            "TableStatus": "ACTIVE",
            "KeySchema": self._key_schema(),
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": kind} for key, kind in kinds.items()],
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
            "LatestStreamArn": self.arn(name, current or changes.stream),
        }
        if current is not None:
            described["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": _view(changes)}
        return {"Table": described}, changes.time()

    def _CreateTable(self, asked: Any) -> tuple[Any, float | None]:
        self._table(asked["TableName"])
        raise _RequestRefused("ResourceInUseException", f"Table already exists: {asked['TableName']}")

    def _DescribeTimeToLive(self, asked: Any) -> tuple[Any, float | None]:
        return {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}}, None

    def _DescribeContinuousBackups(self, asked: Any) -> tuple[Any, float | None]:
        return {"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "DISABLED"}}, None

    # -- within
    def _stream(self, arn: str) -> tuple[str, Changes]:
        if arn not in self._streams:
            raise NotThere(f"Requested resource not found: Stream: {arn} not found")
        return self._streams[arn]

    def _table(self, name: str) -> Changes:
        if name not in self._tables:
            raise NotThere(f"Requested resource not found: Table: {name} not found")
        return self._tables[name]

    def _named(self, arn: str, iterator: str, changes: Changes) -> str:
        name = f"{arn}|{iterator}"
        self._iterators[name] = changes
        return name

    def _key_schema(self) -> list[dict[str, str]]:
        keys = [(self._schema.hash, "HASH"), (self._schema.range, "RANGE")]
        return [{"AttributeName": name, "KeyType": role} for name, role in keys if name is not None]

    def _described(self, change: Change, changes: Changes) -> dict[str, Any]:
        images = {
            name: item_to_wire(change.key, image, self._schema)
            for name, image in (("NewImage", change.new), ("OldImage", change.old))
            if image is not None
        }
        return {
            "eventID": change.id,
            "eventName": change.kind,
            "eventVersion": change.version,
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": change.created_at.timestamp(),
                "Keys": key_to_wire(change.key, self._schema),
                "SequenceNumber": change.sequence,
                "SizeBytes": 1,
                "StreamViewType": _view(changes),
                **images,
            },
        }


class _RequestRefused(Exception):
    """Raised for a refusal that none of tailrace's errors stands for."""

    def answer(self) -> Any:
        return _refusal(*self.args)


def _refusal(code: str, message: str) -> dict[str, str]:
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}


def _view(changes: Any) -> str:
    return VIEWS[getattr(changes, "view", "both")]


def _shard(shard: Shard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": shard.first, "EndingSequenceNumber": shard.last}
    shown: dict[str, Any] = {
        "ShardId": shard.id,
        "SequenceNumberRange": {name: number for name, number in numbers.items() if number is not None},
    }
    return shown if shard.parent is None else {**shown, "ParentShardId": shard.parent}


def _handler(answer: Callable[[str, Any], tuple[int, Any, float | None]]) -> type[BaseHTTPRequestHandler]:
    class StreamRequestHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for an answer: a second one would wait 40 ms for the first to be acknowledged
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            status, found, clock = answer(self.headers.get("X-Amz-Target", ""), asked)
            body = msgspec.json.encode(found)
            self.send_response_only(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-amz-crc32", str(crc32(body)))
            if clock is not None:
                self.send_header("Date", formatdate(clock, usegmt=True))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return StreamRequestHandler
