"""Answers of S3 and DynamoDB that are cut, swallowed, delayed or repeated at any byte: a cut answer is never an empty
one, nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from tailrace.errors import Conflict, TailraceError, TimedOut, Unavailable
from tailrace.events.event import Event
from tailrace.home import Home
from tailrace.storage.aws.buckets import BucketObjects, open_bucket
from tailrace.storage.aws.dynamodb import DynamoTable
from tailrace.storage.calls import Store
from tailrace.storage.tables import Absent, Add, Check, Delete, Equals, Key, Put, Update
from tests.servers.aws import new_bucket, new_table, session_of, table
from tests.servers.canned import saying
from tests.servers.process import Server
from tests.servers.proxy import Fault, Proxy, proxied

pytestmark = pytest.mark.server

THERE, FREE = Key("there"), Key("free")
STEP = 23
"""In the suite an answer is cut at every 23rd byte, and at each byte of its end; `make soak` cuts at every byte."""
LATE = 0.25
"""Seconds that a client waits, where an answer does not come."""

TABLE_CALLS: dict[str, Callable[[DynamoTable], object]] = {
    "get": lambda t: t.get(THERE),
    "get nothing": lambda t: t.get(FREE),
    "query": lambda t: t.query(THERE.p),
    "query nothing": lambda t: t.query(FREE.p),
    "scan": lambda t: t.scan(),
    "check": lambda t: t.write(Check(THERE, (Equals("n", 0),))),
    "put": lambda t: t.write(Put(FREE, {"n": 1}, (Absent(),))),
    "put refused": lambda t: t.write(Put(THERE, {"n": 1}, (Absent(),))),
    "update": lambda t: t.write(Update(THERE, (Add("n", 1),))),
    "update refused": lambda t: t.write(Update(THERE, (Add("n", 1),), (Equals("n", 7),))),
    "delete": lambda t: t.write(Delete(THERE)),
    "delete refused": lambda t: t.write(Delete(FREE)),
    "transaction": lambda t: t.write(Update(THERE, (Add("n", 1),)), Put(FREE, {}, (Absent(),))),
    "transaction refused": lambda t: t.write(Update(THERE, (Add("n", 1),)), Delete(FREE)),
}
OBJECT_CALLS: dict[str, Callable[[BucketObjects], object]] = {
    "get": lambda o: bytes(o.get("a/there")),
    "get nothing": lambda o: o.get("a/free"),
    "ranges": lambda o: [bytes(found) for found in o.get_ranges("a/there", [(2, 3)])],
    "put": lambda o: o.put("b/new", [b"new"]),
    "list": lambda o: list(o.list("a/")),
    "delete": lambda o: o.delete(["b/new"]),
}


def outcome(call: Callable[[], object]) -> object:
    """What a call gives, or the kind of its error."""
    try:
        return call()
    except TailraceError as error:
        return type(error)


def positions(length: int, step: int) -> Iterator[int]:
    """Where to cut an answer of this length: here and there, and at each byte of its end."""
    yield from range(0, length, step)
    yield from range(max(0, length - 4), length)


def check_cut(proxy: Proxy, prepare: Callable[[], object], call: Callable[[], object], step: int) -> None:
    """Whatever is cut off an answer, the call says that there was none."""
    prepare()
    with proxy.failing("none"):
        whole = outcome(call)
        length = proxy.answered
    for at in positions(length, step):
        prepare()
        with proxy.failing("cut_after", at=at):
            found = outcome(call)
            # An answer's length varies by some bytes, so one that was to be cut may have come whole.
            assert found == (TimedOut if proxy.hit else whole), f"cut at byte {at} of {length}"
            assert proxy.hit or at > length - 8
            proxy.hit = 0


@pytest.fixture(scope="module")
def tables(dynoxide: Server) -> Iterator[tuple[DynamoTable, DynamoTable, Proxy]]:
    """A table with a stream: a handle, and another through a proxy."""
    name = new_table(dynoxide, view="both")
    with (
        proxied(dynoxide.url) as proxy,
        table(dynoxide, name) as direct,
        table(dynoxide, name, endpoint=proxy.url, read_timeout=5) as through,
    ):
        yield direct, through, proxy


@pytest.fixture(scope="module")
def buckets(seaweedfs: Server) -> Iterator[tuple[BucketObjects, BucketObjects, Proxy]]:
    """A bucket, and the same through a proxy, without retries."""
    url, session = f"s3://{new_bucket(seaweedfs)}/home", session_of(seaweedfs)
    with proxied(seaweedfs.url) as proxy:
        direct = open_bucket(url, session=session, endpoint=seaweedfs.url)
        direct.put("a/there", [b"what was put"])
        yield direct, open_bucket(url, session=session, endpoint=proxy.url, retries=0), proxy


def as_it_was(direct: DynamoTable) -> None:
    """One item is there, the other is not."""
    for key in (THERE, FREE):
        if direct.get(key) is not None:
            direct.write(Delete(key))
    direct.write(Put(THERE, {"n": 0}, (Absent(),)))


@pytest.mark.parametrize("kind", TABLE_CALLS)
@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.soak)])
def test_a_cut_answer_of_a_table_is_none(tables: tuple[DynamoTable, DynamoTable, Proxy], kind: str, step: int) -> None:
    direct, through, proxy = tables
    check_cut(proxy, lambda: as_it_was(direct), lambda: TABLE_CALLS[kind](through), step)


@pytest.mark.parametrize("kind", OBJECT_CALLS)
@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.soak)])
def test_a_cut_answer_of_a_bucket_is_none(
    buckets: tuple[BucketObjects, BucketObjects, Proxy], kind: str, step: int
) -> None:
    _, through, proxy = buckets
    check_cut(proxy, lambda: None, lambda: OBJECT_CALLS[kind](through), step)


def test_changes_that_are_cut_are_not_passed_over(tables: tuple[DynamoTable, DynamoTable, Proxy]) -> None:
    direct, through, proxy = tables
    as_it_was(direct)
    whole, cut = direct.capture("both"), through.capture("both")
    (shard,) = whole.shards()
    all_of_them = [change.sequence for change in whole.read(whole.iterator(shard.id, "TRIM_HORIZON"), 5).changes]
    assert cut.stream  # asked for once, and known from then on
    check_cut(proxy, lambda: None, lambda: len(cut.shards()), 97)
    check_cut(proxy, lambda: None, lambda: bool(cut.iterator(shard.id, "TRIM_HORIZON")), 97)
    iterator = cut.iterator(shard.id, "TRIM_HORIZON")
    check_cut(proxy, lambda: None, lambda: [c.sequence for c in cut.read(iterator, 5).changes] == all_of_them, 97)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html><body>Welcome</body></html>"),
        (200, b'{"message": "Forbidden"}'),
        (200, b"[]"),
        (400, b""),
        (403, b"<html><body>Forbidden</body></html>"),
        (413, b'{"message": "too large"}'),
    ],
)
def test_what_something_else_answers_is_no_answer_of_dynamodb(status: int, body: bytes) -> None:
    with (
        saying(lambda *_: (status, body)) as url,
        table(Server("canned", "", 0), "tailrace-canned", endpoint=url) as handle,
    ):
        for kind, call in TABLE_CALLS.items():
            assert outcome(lambda call=call: call(handle)) is TimedOut, kind  # type: ignore[misc]


@pytest.mark.parametrize("body", [b"", b"<html><body>Welcome</body></html>"])
def test_what_something_else_answers_is_no_answer_of_a_bucket(body: bytes) -> None:
    server = Server("canned", "", 0)
    with saying(lambda *_: (200, body)) as url:
        objects = open_bucket("s3://bucket/home", session=session_of(server), endpoint=url, retries=0)
        # A page that happens to be XML is taken for a listing of nothing; no reader and no writer goes by a listing.
        for kind in ("put", "get", "get nothing", "ranges"):
            found = outcome(lambda kind=kind: OBJECT_CALLS[kind](objects))  # type: ignore[misc]
            assert found in (TimedOut, Unavailable), kind


def test_an_answer_that_comes_twice_is_taken_once(tables: tuple[DynamoTable, DynamoTable, Proxy]) -> None:
    direct, through, proxy = tables
    as_it_was(direct)
    with proxy.failing("repeat_after"):
        for n in range(20):
            assert through.get(FREE) is None
            assert through.write(Update(THERE, (Add("n", 1),))) == ({"p": "there", "i": 0, "n": n + 1},)
    proxy.hit = 0


def test_a_request_that_comes_twice_is_refused_by_its_own_success(
    tables: tuple[DynamoTable, DynamoTable, Proxy],
) -> None:
    direct, through, proxy = tables
    as_it_was(direct)
    with proxy.failing("repeat_before"), pytest.raises(Conflict) as caught:
        through.write(Put(FREE, {"by": "me"}, (Absent(),)))
    proxy.hit = 0
    assert caught.value.item == {"p": "free", "i": 0, "by": "me"}


# --- what the protocol makes of it
@pytest.fixture(scope="module")
def homes(dynoxide: Server, seaweedfs: Server) -> Iterator[tuple[Home, Home, Proxy, Proxy]]:
    """A home, and another handle on it whose requests all go through two proxies."""
    name, bucket, session = new_table(dynoxide), f"s3://{new_bucket(seaweedfs)}/home", session_of(seaweedfs)
    with (
        proxied(dynoxide.url) as of_table,
        proxied(seaweedfs.url) as of_objects,
        table(dynoxide, name) as direct,
        table(dynoxide, name, endpoint=of_table.url, read_timeout=LATE) as through,
    ):
        objects = open_bucket(bucket, session=session, endpoint=seaweedfs.url)
        late = open_bucket(bucket, session=session, endpoint=of_objects.url, retries=0, timeout=LATE)
        yield Home("s3://direct", Store(direct, objects)), Home("s3://late", Store(through, late)), of_table, of_objects


FAULTS: Sequence[tuple[Fault, float, int]] = [
    ("cut_after", 0, 61),
    ("reset_after", 0, 331),
    ("swallow_after", 0, 331),
    ("delay", 2 * LATE, 331),
    ("repeat_before", 0, 331),
    ("repeat_after", 0, 331),
    ("cut_before", 0, 331),
]
"""A fault, its delay, and at how many bytes' distance it strikes."""
SMALL, LARGE = b"small", b"x" * 40_000
"""Values whose chunk is an item, and an object."""


@pytest.mark.parametrize(("fault", "delay", "step"), FAULTS)
@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["item", "object"])
def test_an_append_through_a_bad_line_is_there_once(
    homes: tuple[Home, Home, Proxy, Proxy], fault: Fault, delay: float, step: int, value: bytes
) -> None:
    direct, through, *proxies = homes
    name = f"{fault}-{len(value)}"
    direct.create_topic(name)
    topic, sent = through.topic(name), 0
    for proxy in proxies:
        for at in range(0, 3000, step):
            with proxy.failing(fault, delay, times=1, at=at):
                (span,) = topic.append([(b"key", value + b"%d" % sent)])
                assert span.offset == sent
                sent += 1
            if proxy.answered <= at:
                break
    values = [record.value for record in direct.topic(name).records()]
    assert values == [value + b"%d" % n for n in range(sent)]
    assert direct.scrub([name]).damages == []


def test_reading_through_a_bad_line_finds_everything(homes: tuple[Home, Home, Proxy, Proxy]) -> None:
    direct, through, *proxies = homes
    of_table = proxies[0]
    direct.create_topic("bad-line")
    direct.topic("bad-line").append([(None, SMALL), (None, SMALL)])
    direct.topic("bad-line").append([(None, LARGE)])
    for proxy, at in itertools.product(proxies, range(0, 1500, 149)):
        with proxy.failing("cut_after", times=1, at=at):
            assert [r.value for r in through.topic("bad-line").records()] == [SMALL, SMALL, LARGE]
        with of_table.failing("cut_after", times=1, at=at):
            assert through.scrub(["bad-line"]).damages == []


def test_an_event_through_a_bad_line_is_there_once(homes: tuple[Home, Home, Proxy, Proxy]) -> None:
    direct, through, of_table, _ = homes
    for at in range(0, 900, 61):
        with of_table.failing("cut_after", times=1, at=at):
            stream = through.events().stream("Cart-1")
            stream.append([Event("Added", b"%d" % at)], expected=stream.version)
    assert [event.data for event in direct.events().stream("Cart-1").read()] == [b"%d" % at for at in range(0, 900, 61)]
