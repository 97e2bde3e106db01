"""DynamoChanges on dynoxide and moto, and what neither does: shards with parents, pages of them, refusals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse

from tailrace.errors import (
    BadInput,
    BadSetting,
    Closed,
    HomeError,
    IteratorExpired,
    NotThere,
    TailraceError,
    Throttled,
    TimedOut,
    Trimmed,
)
from tailrace.storage.aws import dynamostreams
from tailrace.storage.aws.dynamodb import DynamoTable
from tailrace.storage.aws.dynamostreams import DynamoChanges
from tailrace.storage.changes import Change, Shard, View
from tailrace.storage.keys import KeySchema
from tailrace.storage.tables import Absent, Add, Append, Delete, Key, Put, Update
from tailrace.testing.changescontract import ChangesContract
from tests.servers.aws import new_table, table
from tests.servers.canned import answering, refusal
from tests.servers.process import Server

pytestmark = pytest.mark.server


NO_OPS = "the server records writes that change nothing, as DynamoDB does not"
ENDS = "dynoxide says of an open shard where it ends"
WRONG = {
    "dynoxide": {
        "test_what_changes_nothing_is_not_recorded": NO_OPS,
        "test_latest_gives_what_comes_after": ENDS,
        "test_shards_come_after_their_parents": ENDS,
        "test_places_that_are_not_there": "dynoxide has iterators of shards that are not there",
    },
    "moto": {
        "test_what_changes_nothing_is_not_recorded": NO_OPS,
        "test_places_that_are_not_there": "moto answers 500 about a shard that is not there",
    },
}


class CaptureContract(ChangesContract):
    """The contract of changes on one server, but for what that server is known to do wrong."""

    server: str

    @pytest.fixture
    def table(self, request: pytest.FixtureRequest) -> Iterator[DynamoTable]:
        if reason := WRONG[self.server].get(request.node.name):
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        with table(request.getfixturevalue(self.server)) as handle:
            handle.capture("both")
            yield handle

    @pytest.fixture
    def changes(self, table: DynamoTable) -> DynamoChanges:
        return table.capture("both")


class TestOnDynoxide(CaptureContract):
    server = "dynoxide"


class TestOnMoto(CaptureContract):
    server = "moto"


@pytest.fixture(params=["dynoxide", "moto"])
def fresh(request: pytest.FixtureRequest) -> Iterator[DynamoTable]:
    """A new table, on either server."""
    with table(request.getfixturevalue(request.param)) as handle:
        yield handle


def all_of(changes: DynamoChanges, limit: int = 1000) -> list[Change]:
    """Everything in the one shard of these servers, read until a read gives nothing."""
    (shard,) = changes.shards()
    found: list[Change] = []
    iterator: str | None = changes.iterator(shard.id, "TRIM_HORIZON")
    while iterator is not None:
        read = changes.read(iterator, limit)
        if not read.changes:
            break
        assert len(read.changes) <= limit
        found += read.changes
        iterator = read.next
    return found


def story(handle: DynamoTable) -> None:
    """An item is made, changed and removed; and two in one transaction."""
    handle.write(Put(Key("a", 1), {"n": 1, "e": [b"x"], "s": frozenset({"q"})}, (Absent(),)))
    handle.write(Update(Key("a", 1), (Add("n", 1), Append("e", [None]))))
    handle.write(Delete(Key("a", 1)))
    handle.write(Put(Key("b", 1), {}, (Absent(),)), Put(Key("c", 2**63 - 1), {}, (Absent(),)))


FIRST = {"p": "a", "i": 1, "n": 1, "e": [b"x"], "s": frozenset({"q"})}
SECOND = {**FIRST, "n": 2, "e": [b"x", None]}


class TestReading:
    @pytest.mark.parametrize("limit", [1, 2, 1000, 5000])
    def test_changes_in_order(self, fresh: DynamoTable, limit: int) -> None:
        changes = fresh.capture("both")
        story(fresh)
        found = all_of(changes, limit)
        assert [(c.kind, c.key, c.new, c.old) for c in found[:3]] == [
            ("INSERT", Key("a", 1), FIRST, None),
            ("MODIFY", Key("a", 1), SECOND, FIRST),
            ("REMOVE", Key("a", 1), None, SECOND),
        ]
        assert {(c.kind, c.key) for c in found[3:]} == {("INSERT", Key("b", 1)), ("INSERT", Key("c", 2**63 - 1))}
        assert len({c.id for c in found}) == 5
        assert sorted(found, key=lambda c: int(c.sequence)) == found
        for change in found:
            assert change.created_at.tzinfo is UTC
            assert abs(change.created_at - datetime.now(UTC)) < timedelta(minutes=1)

    @pytest.mark.parametrize("view", ["keys", "new", "old", "both"])
    def test_a_view_leaves_parts_out(self, fresh: DynamoTable, view: View) -> None:
        changes = fresh.capture(view)
        story(fresh)
        new, old = view in ("new", "both"), view in ("old", "both")
        assert [(c.new, c.old) for c in all_of(changes)[:3]] == [
            (FIRST if new else None, None),
            (SECOND if new else None, FIRST if old else None),
            (None, SECOND if old else None),
        ]

    def test_where_to_begin(self, fresh: DynamoTable) -> None:
        changes = fresh.capture("keys")
        story(fresh)
        (shard,) = changes.shards()
        sequences = [c.sequence for c in all_of(changes)]

        def begun(*start: Any) -> list[str]:
            return [c.sequence for c in changes.read(changes.iterator(shard.id, *start)).changes]

        assert begun("TRIM_HORIZON") == sequences
        assert begun("AT_SEQUENCE_NUMBER", sequences[2]) == sequences[2:]
        assert begun("AFTER_SEQUENCE_NUMBER", sequences[2]) == sequences[3:]
        latest = changes.read(changes.iterator(shard.id, "LATEST"))
        assert latest.changes == []
        fresh.write(Put(Key("later"), {}, (Absent(),)))
        assert [c.key for c in changes.read(latest.next or "").changes] == [Key("later")]

    def test_a_sequence_goes_with_the_starts_that_need_one(self, fresh: DynamoTable) -> None:
        changes = fresh.capture("keys")
        (shard,) = changes.shards()
        for start, sequence in (("AT_SEQUENCE_NUMBER", None), ("AFTER_SEQUENCE_NUMBER", "x"), ("LATEST", "1")):
            with pytest.raises(BadInput):
                changes.iterator(shard.id, start, sequence)  # type: ignore[arg-type]


class TestSwitchingOn:
    def test_capture_twice_is_capture_once(self, fresh: DynamoTable) -> None:
        first = fresh.capture("new")
        story(fresh)
        second = fresh.capture("new")
        assert second.requests == {"DescribeTable": 1}
        assert all_of(first) == all_of(second) != []

    def test_another_view_is_refused(self, fresh: DynamoTable) -> None:
        fresh.capture("new")
        with pytest.raises(BadSetting, match="NEW_IMAGE"):
            fresh.capture("both")
        with pytest.raises(BadSetting, match="keys"):
            fresh.capture("key")  # type: ignore[arg-type]

    def test_a_table_may_be_made_with_it(self, dynoxide: Server) -> None:
        with table(dynoxide, new_table(dynoxide, view="old")) as handle:
            assert handle.capture("old").requests == {"DescribeTable": 1}

    def test_without_capture_there_is_nothing_to_read(self, fresh: DynamoTable) -> None:
        changes = DynamoChanges(fresh._streams, fresh._client, fresh.name)  # type: ignore[arg-type]
        for call in (changes.shards, lambda: changes.iterator("shard", "TRIM_HORIZON")):
            with pytest.raises(NotThere, match="keeps no changes"):
                call()

    def test_a_missing_table(self, dynoxide: Server) -> None:
        with table(dynoxide, "tailrace-is-not-there") as missing, pytest.raises(HomeError, match="home create"):
            missing.capture("keys")

    def test_a_closed_table(self, fresh: DynamoTable) -> None:
        fresh.close()
        with pytest.raises(Closed):
            fresh.capture("keys")


ARN = "arn:aws:dynamodb:us-east-1:1:table/t/stream/1"


def described(shards: list[Any], **more: Any) -> dict[str, Any]:
    return {"StreamDescription": {"StreamArn": ARN, "StreamStatus": "ENABLED", "Shards": shards, **more}}


def shard(number: int, parent: int | None = None, last: int | None = None) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": str(number), **({"EndingSequenceNumber": str(last)} if last else {})}
    named = {} if parent is None else {"ParentShardId": f"shard-{parent}"}
    return {"ShardId": f"shard-{number}", "SequenceNumberRange": numbers, **named}


class Stream:
    """The answers of a table whose stream is on, and what a test says of the rest."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []

    def __call__(self, operation: str, parameters: Any) -> tuple[int, dict[str, Any]]:
        self.asked.append((operation, parameters))
        if operation == "DescribeTable":
            stream = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
            table = {"TableStatus": "ACTIVE", "LatestStreamArn": ARN, "StreamSpecification": stream}
            return 200, {"Table": table}
        answer = self.answers[operation]
        return answer.pop(0) if isinstance(answer, list) else answer


CANNED = Server("canned", "", 0)


class TestWhatTheseServersDoNot:
    def test_shards_come_page_by_page_and_parents_before_children(self) -> None:
        pages = [
            (200, described([shard(5, 3), shard(4, 3), shard(3, 2, 9)], LastEvaluatedShardId="shard-3")),
            (200, described([shard(2, 1, 8), shard(7)])),
        ]
        stream = Stream(DescribeStream=pages)
        with answering(stream) as url, table(CANNED, "tailrace-canned", endpoint=url) as handle:
            found = handle.capture("keys").shards()
        assert found == [
            Shard("shard-2", "shard-1", "2", "8"),
            Shard("shard-7", None, "7", None),
            Shard("shard-3", "shard-2", "3", "9"),
            Shard("shard-5", "shard-3", "5", None),
            Shard("shard-4", "shard-3", "4", None),
        ]
        assert stream.asked[-1][1]["ExclusiveStartShardId"] == "shard-3"

    @pytest.mark.parametrize(
        ("code", "kind"), [("ResourceNotFoundException", NotThere), ("AccessDeniedException", HomeError)]
    )
    def test_a_table_that_was_dropped_is_not_there(self, code: str, kind: type[TailraceError]) -> None:
        answers: list[Any] = []

        def answer(operation: str, parameters: Any) -> tuple[int, dict[str, Any]]:
            return (400, refusal(code, "because")) if answers else Stream()(operation, parameters)

        with answering(answer) as url, table(CANNED, "tailrace-canned", endpoint=url) as handle:
            changes = handle.capture("keys")
            assert changes.current() == ARN
            answers.append(code)
            with pytest.raises(kind, match="tailrace-canned"):
                changes.current()

    def test_a_closed_shard_ends(self) -> None:
        stream = Stream(GetRecords=(200, {"Records": []}))
        with answering(stream) as url, table(CANNED, "tailrace-canned", endpoint=url) as handle:
            assert handle.capture("keys").read("iterator") == ([], None)

    @pytest.mark.parametrize(
        ("operation", "status", "code", "kind"),
        [
            ("GetShardIterator", 400, "ResourceNotFoundException", NotThere),
            ("GetShardIterator", 400, "TrimmedDataAccessException", Trimmed),
            ("GetShardIterator", 400, "ValidationException", Trimmed),
            ("GetRecords", 400, "ExpiredIteratorException", IteratorExpired),
            ("GetRecords", 400, "TrimmedDataAccessException", Trimmed),
            ("GetRecords", 400, "ValidationException", BadInput),
            ("GetRecords", 400, "LimitExceededException", Throttled),
            ("GetRecords", 400, "ProvisionedThroughputExceededException", Throttled),
            ("GetRecords", 400, "AccessDeniedException", HomeError),
            ("GetRecords", 500, "InternalServerError", TimedOut),
        ],
    )
    def test_refusals(self, operation: str, status: int, code: str, kind: type[TailraceError]) -> None:
        stream = Stream(**{operation: (status, refusal(code, "because"))})
        with answering(stream) as url, table(CANNED, "tailrace-canned", endpoint=url) as handle:
            changes = handle.capture("keys")
            with pytest.raises(TailraceError) as caught:
                if operation == "GetRecords":
                    changes.read("iterator")
                else:
                    changes.iterator("shard-1", "AT_SEQUENCE_NUMBER", "7")
        assert type(caught.value) is kind


def test_records_are_parsed_as_the_sdk_parses_them() -> None:
    values = {
        "s": {"S": "é\u2028"}, "n": {"N": "1E+20"}, "b": {"B": "/wA="}, "t": {"BOOL": False}, "z": {"NULL": True},
        "l": {"L": [{"B": "AA=="}, {"M": {"B": {"B": ""}}}]}, "ss": {"SS": ["B"]}, "bs": {"BS": ["/w==", "AA=="]},
        "ns": {"NS": ["1", "2.5"]},
    }  # fmt: skip
    record = {
        "eventID": "1", "eventName": "MODIFY", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "x",
        "dynamodb": {
            "ApproximateCreationDateTime": 1767225600.25, "Keys": {"b": {"B": "/wA="}}, "NewImage": values,
            "OldImage": values, "SequenceNumber": "17", "SizeBytes": 3, "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }  # fmt: skip
    answer = {"Records": [record], "NextShardIterator": "it"}
    with stubbed(json.dumps(answer).encode()) as client:
        plain = client.get_records(ShardIterator="x")
    with stubbed(json.dumps(answer).encode()) as client:
        client.meta.events.register("before-parse.dynamodb-streams.GetRecords", dynamostreams._parse_records)
        ours = client.get_records(ShardIterator="x")
    schema = KeySchema("b", "B", None)
    assert ours["NextShardIterator"] == "it"
    assert dynamostreams.changes_of(ours["Records"], schema) == [
        dynamostreams.change_of(r, schema) for r in plain["Records"]
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"Records": 5}', b'{"Records": [{}]}', b"<html>"])
def test_answers_that_are_none_are_left_to_the_sdk(body: bytes) -> None:
    given = {"status_code": 200, "body": body, "headers": {}}
    mine: dict[str, object] = {}
    dynamostreams._parse_records(given, mine)
    assert (given["body"], mine) == (body, {})


@contextlib.contextmanager
def stubbed(body: bytes) -> Iterator[Any]:
    """A client whose requests are all answered with this body."""
    client = boto3.Session("k", "s", region_name="us-east-1").client("dynamodbstreams")
    answer = AWSResponse("http://x", 200, {"content-type": "application/x-amz-json-1.0"}, None)
    answer._content = body
    client.meta.events.register("before-send.dynamodb-streams.*", lambda **_: answer)
    try:
        yield client
    finally:
        client.close()
