"""Readers of the feed that meet an error or a cancelled task in the middle, and that go on with the same object."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import tailrace
from tailrace.errors import Unavailable
from tailrace.events import Event
from tailrace.feed.feed import Feed
from tailrace.feed.store import FedEvents

SECONDS = 60.0


@pytest.fixture
def events() -> Iterator[FedEvents]:
    with tailrace.open("memory://") as home:
        yield home.events()


def fill(events: FedEvents, appends: int = 6, each: int = 3) -> list[tuple[str, int]]:
    """Several batches of the index, each with several events."""
    events.feed()
    for n in range(appends):
        events.stream(f"Cart-{n % 2}").append([Event("A") for _ in range(each)])
        events.catch_up()
    return sorted((f"Cart-{q}", n) for q in range(2) for n in range(appends // 2 * each))


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[], bool]) -> None:
    """Let some of a feed's reads of its events fail."""
    fetched = Feed._fetched

    def failing_fetched(self: Feed, spans: Any) -> Any:
        if fails():
            raise Unavailable("the store does not answer")
        return fetched(self, spans)

    monkeypatch.setattr(Feed, "_fetched", failing_fetched)


def every(count: int) -> Callable[[], bool]:
    reads = itertools.count(1)
    return lambda: next(reads) % count == 0


@pytest.mark.parametrize("count", [2, 3])
def test_a_consumer_skips_no_event_whose_body_could_not_be_read(
    events: FedEvents, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    wanted, seen = fill(events), list[tuple[str, int]]()
    failing(monkeypatch, every(count))
    consumer = events.feed().consumer("mailer", lambda event: seen.append((event.stream, event.index)))
    consumer.run(SECONDS, until_caught_up=True)
    assert sorted(seen) == wanted


def test_a_feed_goes_on_after_an_error(events: FedEvents, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, seen = fill(events), list[tuple[str, int]]()
    failing(monkeypatch, every(3))
    with events.feed() as feed:
        while len(seen) < len(wanted):
            with suppress(Unavailable):
                for event in feed:
                    seen.append((event.stream, event.index))
    assert sorted(seen) == wanted


def test_a_loop_that_was_left_goes_on_within_its_batch(events: FedEvents) -> None:
    wanted = fill(events)

    async def main() -> list[tuple[str, int]]:
        seen = []
        async with await events.aio.feed() as feed:
            while len(seen) < len(wanted):
                async for event in feed:
                    seen.append((event.stream, event.index))
                    break
        return seen

    assert sorted(asyncio.run(asyncio.wait_for(main(), SECONDS))) == wanted


@pytest.mark.parametrize("way", ["follow", "batches"])
def test_a_cancelled_task_takes_no_event_with_it(events: FedEvents, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    wanted = fill(events)
    asked, go_on = threading.Event(), threading.Event()

    def wait() -> bool:
        asked.set()
        return not go_on.wait(SECONDS)

    failing(monkeypatch, wait)

    async def main() -> list[tuple[str, int]]:
        async with await events.aio.feed() as feed:
            waiting = asyncio.ensure_future(anext(getattr(feed, way)()))
            await asyncio.to_thread(asked.wait, SECONDS)
            waiting.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert feed.checkpoint == 0, "nothing was given yet"
            return [(event.stream, event.index) async for event in feed]

    assert sorted(asyncio.run(main())) == wanted
