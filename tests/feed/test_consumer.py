"""Consumers of the feed: stored checkpoints, sharing, projections, failing handlers, what operators do, bad input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import (
    BadInput,
    BadName,
    BadSetting,
    Conflict,
    HandlerFailed,
    OutOfRange,
    UnknownGroup,
    UnknownPartition,
)
from tailrace.events import Event
from tailrace.feed.feed import FeedEvent
from tailrace.feed.store import FedEvents
from tailrace.home import Home
from tailrace.streams import Add, Engine, hash_key, model

SECONDS = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@model()
class Count:
    id: str = hash_key()
    n: int = 0


@pytest.fixture(params=["memory", "disk"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with tailrace.open("memory://" if request.param == "memory" else tmp_path / "home") as home:
        yield home


@pytest.fixture
def events(home: Home) -> FedEvents:
    return home.events()


@pytest.fixture
def engine(home: Home) -> Engine:
    engine = home.engine()
    engine.bind(Count)
    engine.save(Count(id="all"))
    return engine


def caught_up(events: FedEvents, group: str = "mailer", **filters: Any) -> list[tuple[str, int]]:
    """What a consumer that catches up is given."""
    seen: list[tuple[str, int]] = []
    feed = events.feed(**filters)
    feed.consumer(group, lambda event: seen.append((event.stream, event.index))).run(SECONDS, until_caught_up=True)
    return seen


def test_a_group_goes_on_where_it_was(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A"), Event("B")])
    events.stream("Order-1").append([Event("C")])
    assert sorted(caught_up(events)) == [("Cart-1", 0), ("Cart-1", 1), ("Order-1", 0)]
    events.stream("Cart-1").append([Event("D")])
    assert caught_up(events) == [("Cart-1", 2)]
    assert len(caught_up(events, "another")) == 4
    assert caught_up(events) == []


def test_a_checkpoint_moves_over_what_is_filtered(events: FedEvents) -> None:
    for n in range(5):
        events.stream(f"Cart-{n}").append([Event("A")])
    assert caught_up(events, category="Order") == []
    (shown,) = events.feed().checkpoints.show("mailer").partitions
    assert shown.checkpoint == shown.tail > 0
    assert shown.behind == 0


def test_an_event_is_handled_soon_after_it_is_appended(events: FedEvents) -> None:
    seen: list[FeedEvent] = []
    with events.feed().consumer("mailer", seen.append):
        events.stream("Cart-1").append([Event("A", b"tea")])
        until(lambda: len(seen) == 1)
    assert (seen[0].stream, seen[0].data) == ("Cart-1", b"tea")


# -- projections
def test_a_projection_commits_table_writes_and_appends_with_its_checkpoint(events: FedEvents, engine: Engine) -> None:
    events.stream("Cart-1").append([Event("A", b"%d" % n) for n in range(7)])

    def project(event: FeedEvent) -> Any:
        writes = engine.writes()
        writes.update(Count, Add("n", 1), id="all")
        return [writes, events.stream("Log-1").change([Event("Seen", event.data)])]

    events.feed(category="Cart").consumer("count", project).run(SECONDS, until_caught_up=True)
    assert engine.load(Count, id="all") == Count(id="all", n=7)
    assert [event.data for event in events.stream("Log-1").read()] == [b"%d" % n for n in range(7)]


def test_a_projection_that_stops_within_a_batch_goes_on_within_it(events: FedEvents, engine: Engine) -> None:
    events.stream("Cart-1").append([Event("A", b"%d" % n) for n in range(5)])  # one batch of the index

    def project(bad: bytes | None) -> Callable[[FeedEvent], Any]:
        def handler(event: FeedEvent) -> Any:
            if event.data == bad:
                raise ValueError("not this one")
            writes = engine.writes()
            writes.update(Count, Add("n", 1), id="all")
            return writes

        return handler

    with pytest.raises(HandlerFailed, match="Cart-1/3"):
        events.feed().consumer("count", project(b"3"), attempts=1).run(SECONDS)
    (shown,) = events.feed().checkpoints.show("count").partitions
    assert (shown.checkpoint, shown.within) == (0, 3)
    events.feed().consumer("count", project(None)).run(SECONDS, until_caught_up=True)
    assert engine.load(Count, id="all") == Count(id="all", n=5)


def test_an_append_with_a_version_that_is_not_expected_is_decided_again(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A")])
    events.stream("Log-1").append([Event("Other")])
    versions = [0, 1]
    events.feed(category="Cart").consumer(
        "log", lambda event: events.stream("Log-1").change([Event("Seen")], expected=versions.pop(0))
    ).run(SECONDS, until_caught_up=True)
    assert [event.type for event in events.stream("Log-1").read()] == ["Other", "Seen"]


# -- failures
def test_an_event_that_keeps_failing_is_kept_aside(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A", b"1"), Event("B", b"2"), Event("C", b"3")])

    def handler(event: FeedEvent) -> None:
        if event.type == "B":
            raise KeyError("b")

    ran = events.feed().consumer("mailer", handler, on_error="dead_letter", attempts=2)
    assert ran.run(SECONDS, until_caught_up=True).records == 2
    checkpoints = events.feed().checkpoints
    (letter,) = checkpoints.dead_letters("mailer")
    assert (letter.id, letter.record["type"], letter.record["data"]) == ("Cart-1/1", "B", b"2")
    assert checkpoints.show("mailer").dead_letters == 1
    checkpoints.settle("mailer", letter.number)
    assert checkpoints.dead_letters("mailer") == []
    assert caught_up(events) == []


# -- several members
def test_one_of_several_members_has_the_partition_and_another_takes_over(events: FedEvents) -> None:
    seen: list[tuple[int, int]] = []
    members = [
        events.feed().consumer("mailer", lambda event, n=n: seen.append((n, event.index)), ttl=1)  # type: ignore[misc]
        for n in range(3)
    ]
    for member in members:
        member.start()
    try:
        until(lambda: sorted(len(member.units) for member in members) == [0, 0, 1])
        events.stream("Cart-1").append([Event("A")])
        until(lambda: len(seen) == 1)
        members[seen[0][0]].close()
        events.stream("Cart-1").append([Event("B")])
        until(lambda: len(seen) == 2)
    finally:
        for member in members:
            member.close()
    assert [index for _, index in seen] == [0, 1]
    assert seen[0][0] != seen[1][0]


def test_the_partitions_of_an_index_are_shared_out(events: FedEvents) -> None:
    events.create_index(3)
    seen: list[tuple[int, FeedEvent]] = []
    members = [
        events.feed().consumer("mailer", lambda event, n=n: seen.append((n, event)), ttl=1)  # type: ignore[misc]
        for n in range(3)
    ]
    for member in members:
        member.start()
    try:
        until(lambda: [len(member.units) for member in members] == [1, 1, 1])
        for n in range(30):
            events.stream(f"Cart-{n % 10}").append([Event("A")])
        until(lambda: len(seen) == 30)
    finally:
        for member in members:
            member.close()
    assert len({n for n, _ in seen}) > 1
    for n in range(10):
        assert [event.index for _, event in seen if event.stream == f"Cart-{n}"] == [0, 1, 2]
    shown = events.checkpoints.show("mailer").partitions
    assert [part.checkpoint for part in shown] == [part.tail for part in shown]
    assert caught_up(events) == []
    with pytest.raises(BadInput, match="all 3 partitions"):
        events.feed(partition=1).consumer("one", print).run(SECONDS)


# -- operators
def test_a_checkpoint_is_overridden_while_a_consumer_waits_at_the_tail(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A"), Event("B")])
    seen: list[int] = []
    with events.feed().consumer("mailer", lambda event: seen.append(event.index)) as consumer:
        until(lambda: consumer.caught_up and len(seen) == 2)
        events.feed().checkpoints.override("mailer", 0)
        until(lambda: seen == [0, 1, 0, 1])
    assert caught_up(events) == []
    events.feed().checkpoints.reset("mailer")
    assert len(caught_up(events)) == 2


def test_groups_are_listed_shown_and_deleted(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A")])
    checkpoints = events.feed().checkpoints
    assert list(checkpoints.list()) == []
    with pytest.raises(UnknownGroup):
        checkpoints.show("mailer")
    caught_up(events)
    caught_up(events, "another")
    assert [shown.group for shown in checkpoints.list()] == ["another", "mailer"]
    checkpoints.delete("mailer")
    assert list(checkpoints.groups()) == ["another"]
    assert len(caught_up(events)) == 1
    with events.feed().consumer("mailer", print, ttl=1) as consumer:
        until(lambda: bool(consumer.units))
        (shown,) = checkpoints.show("mailer").partitions
        assert shown.member is not None
        with pytest.raises(Conflict, match="active members"):
            checkpoints.delete("mailer", ttl=60)


# -- asyncio
def test_the_feed_and_its_consumers_can_be_awaited(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A"), Event("B")])
    events.feed()
    events.catch_up()

    async def main() -> tuple[list[int], list[int], int]:
        handled = []

        async def handler(event: FeedEvent) -> None:
            await asyncio.sleep(0)
            handled.append(event.index)

        async with await events.aio.feed() as feed:
            now = [event.index async for event in feed]
            assert feed.checkpoint > 0
            await events.aio.stream("Cart-1").append([Event("C")])
            async for event in feed.follow(seconds=SECONDS):
                now.append(event.index)
                break
        ran = await events.feed().consumer("mailer", handler).arun(SECONDS, until_caught_up=True)
        return now, handled, ran.records

    assert asyncio.run(main()) == ([0, 1, 2], [0, 1, 2], 3)


# -- bad input
def test_bad_checkpoints_are_refused(events: FedEvents) -> None:
    events.stream("Cart-1").append([Event("A")])
    caught_up(events)
    checkpoints = events.feed().checkpoints
    for bad in (-1, "7", None, 1.0, True, 2**63):
        with pytest.raises(BadInput):
            checkpoints.override("mailer", bad)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            events.feed(bad)  # type: ignore[arg-type]
    with pytest.raises(OutOfRange, match="beyond the tail"):
        checkpoints.override("mailer", 999)
    with pytest.raises(OutOfRange, match="beyond the tail"):
        events.feed(999).consumer("new", print).run(SECONDS)
    with pytest.raises(UnknownGroup):
        checkpoints.show("new")
    with pytest.raises(UnknownPartition):
        checkpoints.override("mailer", 0, partition=1)
    with pytest.raises(UnknownGroup):
        checkpoints.override("nobody", 0)
    assert caught_up(events) == []


def test_bad_consumers_are_refused(events: FedEvents) -> None:
    feed = events.feed()
    with pytest.raises(BadName):
        feed.consumer("a/b", print)
    with pytest.raises(BadSetting):
        feed.consumer("mailer", print, on_eror="stop")
    with pytest.raises(BadInput):
        feed.consumer("mailer", "print")  # type: ignore[arg-type]
    events.stream("Cart-1").append([Event("A")])
    with pytest.raises(HandlerFailed, match="a handler returns None"):
        feed.consumer("mailer", lambda event: "done", attempts=1).run(SECONDS)
