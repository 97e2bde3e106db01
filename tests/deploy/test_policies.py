"""Each role's policy against every request that tailrace makes in that role, taken down on the way to a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.events import Event
from tailrace.feed.index import Indexer
from tailrace.feed.span import Span
from tailrace.home import Home
from tailrace.lambdas.consumer import ConsumerFunction
from tailrace.lambdas.indexer import IndexerFunction
from tests.deploy.permissions import refused, unused
from tests.deploy.template import ACCOUNT, REGION, Template
from tests.lambdas.delivery import records_of
from tests.servers.aws import new_bucket, new_table
from tests.servers.process import Server
from tests.servers.recording import Recording, Request, recording

pytestmark = pytest.mark.server

LARGE = bytes(range(256)) * 200


class Place:
    """A home behind a recording proxy, and the policies of the stack that it would be in."""

    def __init__(self, proxy: Recording, url: str, template: Template) -> None:
        self.proxy, self.url, self.template = proxy, url, template
        self.produced: list[Request] = []
        self.indexed: list[Request] = []

    def open(self) -> Home:
        return tailrace.open(self.url)

    def arn(self, request: Request) -> str:
        """The resource of a request."""
        (bucket,), (table,) = self.template.of("AWS::S3::Bucket"), self.template.of("AWS::DynamoDB::Table")
        if request.action.startswith("s3:"):
            return f"arn:aws:s3:::{bucket}" + (f"/{request.name}" if request.name else "")
        return self.template.arn(table) + ("/stream/1" if request.name == "stream" else "")

    def check(self, *roles: str) -> list[Request]:
        """Every request since the last check is allowed to each of these roles; gives the requests."""
        requests = self.proxy.take()
        assert requests
        for role in roles:
            assert not refused(self.template.statements(role), requests, self.arn), role
        return requests

    def unused(self, role: str, requests: list[Request]) -> set[str]:
        statements = [one for one in self.template.statements(role) if "Sid" in one]
        return unused(statements, requests, self.arn)


@pytest.fixture(scope="module")
def place(moto: Server, template: Template) -> Iterator[Place]:
    """A home that an operator made, and a producer filled."""
    table, bucket = new_table(moto, "new"), new_bucket(moto)
    with pytest.MonkeyPatch.context() as patch, recording(moto.url) as proxy:
        patch.setenv("AWS_ACCESS_KEY_ID", moto.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret)
        ends = f"endpoint={proxy.url}&table_endpoint={proxy.url}"
        place = Place(proxy, f"s3://{bucket}/home?table={table}&region={moto.region}&{ends}", template)
        with place.open() as home:
            for name in ("orders", "mails"):
                home.create_topic(name, 2)
        place.check("operator")
        with place.open() as home:
            produce(home)
            place.produced = place.check("producer", "operator")
            home.store.run(Indexer().ingest([Span("Cart-1", 0, ("Added",) * 5)]))
            place.indexed = place.check("Indexer")
        yield place


def produce(home: Home) -> None:
    """Appends of every kind."""
    orders = home.topic("orders")
    with orders.producer(linger=0) as out:
        for n in range(30):  # more than fits one head, so it is rolled
            out.send(b"%d" % n, LARGE if n % 3 else b"small").result(60)
    till = orders.named_producer("till")
    till.send_batch([(b"k", b"v")])
    till.send_batch([(b"k", LARGE)])
    with home.transaction("orders", "mails") as both:
        both.send(b"k", b"v", topic="orders")
        both.send(b"k", b"v", topic="mails")
    cart = home.events(max_events=2).stream("Cart-1")
    for n in range(5):
        cart.append([Event("Added", b"%d" % n)])
    assert len(list(cart.read())) == 5
    home.events().append(home.events().stream("Order-9").change([Event("Placed")]), cart.expect(5))


def consume(home: Home) -> None:
    """Reads of every kind, for a group and without one."""
    orders = home.topic("orders")
    for name in ("billing", "mailer"):
        with orders.consumer(name) as consumer:
            assert consumer.run(lambda record: None).records
    with orders.consumer("billing", member="till-1") as consumer:
        consumer.run(lambda record: None)
    assert list(orders.records())
    assert list(home.events().stream("Cart-1").read())
    with home.events().feed() as feed:
        assert list(feed)
    home.events().feed().consumer("mailer", lambda event: None).run(until_caught_up=True)
    bad = home.events().feed().consumer("failing", fail, on_error="dead_letter", attempts=1, member="till-1")
    bad.run(until_caught_up=True)


def fail(event: object) -> None:
    """A handler that takes nothing."""
    raise ValueError("no")


def test_a_producer(place: Place) -> None:
    # Pages are looked through for an append whose answer was lost.
    assert place.unused("producer", place.produced) == {"ReadTopics Query"}
    rights = place.template.statements("producer")
    for beyond in (
        Request("s3:GetObject", "home/topics/1/0/ab"),
        Request("s3:DeleteObject", "home/topics/1/0/ab"),
        Request("s3:PutObject", "other/topics/1/0/ab"),
        Request("dynamodb:DeleteItem", "", ("$Log-1",)),
        Request("dynamodb:PutItem", "", ("$Home",)),
        Request("dynamodb:UpdateItem", "", ("$Group-billing_1",)),
        Request("dynamodb:PutItem", "", ("$AppendsEpoch-0_0",)),
        Request("dynamodb:Scan"),
    ):
        assert refused(rights, [beyond], place.arn), beyond


def test_a_consumer(place: Place) -> None:
    with place.open() as home:
        consume(home)
    requests = place.check("consumer", "TopicConsumer", "operator")
    # Pages are looked through for a time; a decider reads the Tip alone.
    assert place.unused("consumer", requests) == {"ReadTopics Query", "ReadEventStreams GetItem"}
    for beyond in (
        Request("s3:PutObject", "home/topics/1/0/ab"),
        Request("dynamodb:UpdateItem", "", ("$Log-1",)),
        Request("dynamodb:PutItem", "", ("Cart-1",)),
        Request("dynamodb:PutItem", "", ("$Groups", "$Log-1")),
        Request("dynamodb:Scan"),
    ):
        assert refused(place.template.statements("consumer"), [beyond], place.arn), beyond


def test_the_consumer_s_function(place: Place) -> None:
    started: list[str] = []

    class Context:
        invoked_function_arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:tailrace-consumer"

        def get_remaining_time_in_millis(self) -> int:
            return 0

    with place.open() as home:
        ConsumerFunction(home, "orders", "lambda", lambda record: None, started.append).consume({}, Context())
    place.check("TopicConsumer")
    (start,) = (one for one in place.template.statements("TopicConsumer") if one.get("Sid") == "StartAgain")
    assert started == [start["Resource"]]


def test_the_indexer(place: Place) -> None:
    with place.open() as home:
        for n in range(3):
            home.events().stream("Order-1").append([Event(f"{n}")])
        records: list[dict[str, Any]] = records_of(home.store.table)  # type: ignore[arg-type]
        records = [one for one in records if one["dynamodb"]["Keys"]["p"]["S"] == "Order-1"]
        place.proxy.take()
        indexer = IndexerFunction(home.store, home.store.table.name)  # type: ignore[attr-defined]
        indexer.index({"Records": records[:1]})
        indexer.index({"Records": records[2:]})  # the one between comes from the store
    requests = place.check("Indexer", "operator")
    assert place.unused("Indexer", requests + place.indexed) == {"ReadEventStreams GetItem"}
    for beyond in (
        Request("dynamodb:UpdateItem", "", ("Order-1",)),
        Request("dynamodb:UpdateItem", "", ("$Log-1",)),
        Request("dynamodb:DeleteItem", "", ("$AppendsEpoch-0_0",)),
        Request("dynamodb:Scan"),
        Request("s3:GetObject", "home/topics/1/0/ab"),
    ):
        assert refused(place.template.statements("Indexer"), [beyond], place.arn), beyond


def test_an_operator(place: Place, tmp_path: Path) -> None:
    with place.open() as home:
        orders = home.topic("orders")
        orders.configure(retention_ms=86_400_000)
        orders.grow(3)
        orders.append([(b"k", b"v"), (b"l", LARGE)])
        home.upkeep()
        home.scrub()
        home.copy(tmp_path / "copy")
        home.create_topic("short", 1).append([(b"k", LARGE)])
        home.delete_topic("short")
        home.store.table.changes().shards()  # type: ignore[attr-defined]
    requests = place.check("operator")
    assert place.unused("operator", requests) <= {
        "ReadTheStream GetRecords",
        "ReadTheStream GetShardIterator",
        "FindOutWhatIsThere GetObject",
        "UseTheTable ConditionCheckItem",
    }
    for beyond in (
        Request("dynamodb:DeleteTable"),
        Request("dynamodb:UpdateTable"),
        Request("s3:DeleteObject", "other/topics/1/0/ab"),
        Request("s3:ListBucket", "", ("other/",)),
    ):
        assert refused(place.template.statements("operator"), [beyond], place.arn), beyond
