"""How quick is the feed of all events, beside `eventsourcing`'s notification log, and does it slow down as it grows?"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tailrace
from benchmarks.events import DATA, expect_full
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.events import Event
from tailrace.feed.index import Indexer
from tailrace.feed.indexing import fill
from tailrace.home import Home
from tailrace.testing import SimulatedObjects, SimulatedTable

CATCH_UP = Figure("events/s")
BODIES, NO_BODIES = "tailrace, with bodies", "tailrace, without bodies"
LOG, DECODED = "eventsourcing, notification log", "eventsourcing, decoded"
STREAMS, BATCH, PAGE = 1_000, 100, 1_000
DELAY = Figure("append to handler, p50 ms", 2, more=False)
READ = Figure("read without bodies, events/s")
INDEXED = Figure("indexed, events/s")
APPENDS = 100


def question(quick: bool) -> Question:
    """Everything from the first event on, by both."""
    count = 20_000 if quick else 1_000_000
    sides = [
        Side(BODIES, "events.feed()", partial(ours, count=count, bodies=True)),
        Side(NO_BODIES, "events.feed(bodies=False)", partial(ours, count=count, bodies=False)),
        Side(LOG, f"SQLiteApplicationRecorder.select_notifications(), pages of {PAGE:,}", partial(theirs, count=count)),
        Side(DECODED, "the same, each made a domain event", partial(theirs, count=count, decoded=True)),
    ]
    return Question(
        name="feed",
        title="catching up on all events, from the first",
        note=f"{count:,} events of 200 bytes in {STREAMS:,} streams, filled in by appends of {BATCH}.",
        sides=sides,
        figures=[CATCH_UP],
        base=BODIES,
        targets=[
            Target("with bodies: ≥ 20,000 events/s", lambda results: results.of(BODIES, CATCH_UP.name), 20_000),
            Target("without bodies: ≥ 100,000 events/s", lambda results: results.of(NO_BODIES, CATCH_UP.name), 100_000),
        ],
        rounds=2 if quick else 5,
    )


def filled(home: Home, count: int) -> None:
    """So many events in streams that are appended to in turn."""
    events = home.events(compression="none")
    for n in range(count // BATCH):
        events.stream(f"Cart-{n % STREAMS}").append([Event("Added", DATA) for _ in range(BATCH)])
    events.catch_up(600)


@contextlib.contextmanager
def ours(folder: Path, count: int, bodies: bool) -> Iterator[Run]:
    """A home whose events are indexed."""
    with tailrace.open(folder / "home") as home:
        filled(home, count)

        def run() -> Figures:
            with home.events().feed(bodies=bodies) as feed:
                seconds, found = timed(lambda: sum(len(batch) for batch in feed.batches()))
            expect("events of the feed", found, count)
            return {CATCH_UP.name: count / seconds}

        yield run


@contextlib.contextmanager
def theirs(folder: Path, count: int, decoded: bool = False) -> Iterator[Run]:
    """An application's recorder with as many events."""
    from eventsourcing.application import Application

    from benchmarks.carts import Cart

    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
    application: Any = Application(env=env)
    expect_full(folder / "events.db")
    for _ in range(count // BATCH):
        cart = Cart()  # its first event is its creation
        for _ in range(BATCH - 1):
            cart.add("tea", 1, DATA[-160:].decode())
        application.save(cart)

    def run() -> Figures:
        seconds, found = timed(lambda: _notified(application, decoded))
        expect("notifications", found, count)
        return {CATCH_UP.name: count / seconds}

    try:
        yield run
    finally:
        application.close()


def _notified(application: Any, decoded: bool) -> int:
    found, start = 0, 1
    make: Callable[[Any], Any] = application.mapper.to_domain_event if decoded else lambda notification: notification
    while page := application.recorder.select_notifications(start, PAGE):
        found += sum(make(notification) is not None for notification in page)
        start = page[-1].id + 1
    return found


# --- growth -----------------------------------------------------------------------------------------------------------
def growth(quick: bool) -> Question:
    """The same feed with ten thousand to a million events behind it."""
    sizes = [2_000, 10_000] if quick else [10_000, 100_000, 1_000_000]
    names = [f"{size:,} events" for size in sizes]

    def ratio(figure: Figure, results: Results) -> float:
        first, last = results.of(names[0], figure.name), results.of(names[-1], figure.name)
        return first / last if figure.more else last / first

    return Question(
        name="feed_growth",
        title="the feed and its index as they grow",
        note=f"The delay is from before an append to the handler of a loop over feed.follow(), for {APPENDS} appends, "
        "one by one. Indexing is that of the whole store into an empty index in memory.",
        sides=[Side(name, "tailrace", partial(grown, count=size)) for name, size in zip(names, sizes, strict=True)],
        figures=[DELAY, READ, INDEXED],
        base=names[0],
        targets=[
            Target("delay, p50: ≤ 50 ms", lambda results: results.of(names[-1], DELAY.name), 50, at_most=True),
            Target("read: ≤ 1.2 times as slow", partial(ratio, READ), 1.2, at_most=True),
            Target("indexing: ≤ 1.2 times as slow", partial(ratio, INDEXED), 1.2, at_most=True),
        ],
        rounds=2 if quick else 5,
    )


@contextlib.contextmanager
def grown(folder: Path, count: int) -> Iterator[Run]:
    """A home with so many events; what a round appends comes on top."""
    with tailrace.open(folder / "home") as home:
        filled(home, count)

        def run() -> Figures:
            with home.events().feed(bodies=False) as feed:
                seconds, found = timed(lambda: sum(len(batch) for batch in feed.batches()))
                tail = feed.checkpoint
            return {
                DELAY.name: delay(home, tail) * 1e3,
                READ.name: found / seconds,
                INDEXED.name: indexed(home),
            }

        yield run


def delay(home: Home, tail: int) -> float:
    """The median of the seconds between an append and its handler."""
    events, came = home.events(), threading.Event()
    delays: list[float] = []
    began = [0.0]

    def handle() -> None:
        with events.feed(tail) as feed:
            for _ in feed.follow():
                delays.append(time.perf_counter() - began[0])
                came.set()
                if len(delays) == APPENDS:
                    return

    thread = threading.Thread(target=handle, daemon=True)
    thread.start()
    for n in range(APPENDS):
        came.clear()
        began[0] = time.perf_counter()
        events.stream(f"Late-{n % 10}").append([Event("Added", DATA)])
        expect("an event came within 30 s", came.wait(30), True)
    thread.join()
    return statistics.median(delays)


class Beside(SimulatedTable):
    """A table that the index is written to while the store is read from another."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home

    def scan(self, after: Any = None) -> Any:
        """The items of the store."""
        return self._home.store.table.scan(after)


def indexed(home: Home) -> float:
    """Events of the store that are indexed a second, from the first."""
    from tailrace.storage.calls import Store

    store = Store(Beside(home), SimulatedObjects())
    seconds, found = timed(lambda: sum(taken for _, taken in fill(store, [Indexer()])))
    return found / seconds
