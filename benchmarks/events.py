"""How many appends and reads a second does the event store make, beside `eventsourcing` on SQLite?"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.events import Cache, Event, JsonCodec

NOTE = "x" * 160
DATA = b'{"sku":"tea","count":1,"note":"%s"}' % NOTE.encode()
THREADS, LENGTH = 16, 1000
ONE, TEN = Figure("1 thread, 1 event"), Figure("1 thread, 10 events")
MANY, MANY_TEN = Figure(f"{THREADS} threads, 1 event"), Figure(f"{THREADS} threads, 10 events")
READ = Figure(f"reads of {LENGTH:,} events/s", 1)
OURS, DECIDER = "tailrace, streams", "tailrace, deciders"
RECORDER, APPLICATION = "eventsourcing, recorder", "eventsourcing, application"


class Streams(Protocol):
    """An event store under test."""

    def appender(self) -> Callable[[int], object]:
        """What appends so many events to a stream of its own, each call one durable commit."""

    def reader(self, length: int) -> Callable[[], int]:
        """What reads a whole stream of this length; it answers how many events there were."""

    def close(self) -> None:
        """Let everything go."""


class Tailrace:
    """Streams with events as bytes, each append at the version that the last one gave."""

    def __init__(self, folder: Path) -> None:
        self.home = tailrace.open(folder / "home")
        self.events = self.home.events(compression="none")

    def appender(self) -> Callable[[int], object]:
        """An append at an expected version."""
        stream, version = self.events.stream(f"Cart-{uuid.uuid4().hex}"), 0

        def append(count: int) -> None:
            nonlocal version
            version = stream.append([Event("Added", DATA) for _ in range(count)], expected=version)

        return append

    def reader(self, length: int) -> Callable[[], int]:
        """All events, from the first."""
        stream = self.events.stream(f"Cart-{uuid.uuid4().hex}")
        for _ in range(length // 10):
            stream.append([Event("Added", DATA) for _ in range(10)])
        return lambda: sum(event.data == DATA for event in stream.read())

    def close(self) -> None:
        """Close the home."""
        self.home.close()


class Added(msgspec.Struct, frozen=True):
    """Something was put into a cart."""

    sku: str
    count: int
    note: str


class Deciders(Tailrace):
    """The same with typed events: a state is loaded, events are decided, and appended at its version."""

    def _decider(self, cache: Cache | None) -> Any:
        stream = f"Cart-{uuid.uuid4().hex}"
        return self.events.decider(stream, JsonCodec(Added), lambda count, _: count + 1, 0, cache=cache)

    def appender(self) -> Callable[[int], object]:
        """One decision, its state cached."""
        decider = self._decider(Cache())
        return lambda count: decider.transact(lambda state: [Added("tea", 1, NOTE) for _ in range(count)])

    def reader(self, length: int) -> Callable[[], int]:
        """The state, folded from all events."""
        decider = self._decider(None)
        for _ in range(length // 10):
            decider.transact(lambda state: [Added("tea", 1, NOTE) for _ in range(10)])
        return decider.state  # type: ignore[no-any-return]


class Recorder:
    """eventsourcing's SQLite recorder of aggregates, with events as bytes."""

    def __init__(self, folder: Path) -> None:
        from eventsourcing.sqlite import SQLiteAggregateRecorder, SQLiteDatastore

        self.store = SQLiteDatastore(str(folder / "events.db"), pool_size=THREADS)
        self.recorder = SQLiteAggregateRecorder(self.store)
        self.recorder.create_table()
        expect_full(folder / "events.db")

    def _insert(self, id: uuid.UUID, version: int, count: int) -> None:
        from eventsourcing.persistence import StoredEvent

        self.recorder.insert_events(
            [
                StoredEvent(originator_id=id, originator_version=version + n, topic="Added", state=DATA)
                for n in range(1, count + 1)
            ]
        )

    def appender(self) -> Callable[[int], object]:
        """An insert of the next versions."""
        id, version = uuid.uuid4(), 0

        def append(count: int) -> None:
            nonlocal version
            self._insert(id, version, count)
            version += count

        return append

    def reader(self, length: int) -> Callable[[], int]:
        """All events, from the first."""
        id = uuid.uuid4()
        for start in range(0, length, 10):
            self._insert(id, start, 10)
        return lambda: sum(event.state == DATA for event in self.recorder.select_events(id))

    def close(self) -> None:
        """Close its connections."""
        self.store.close()


class Application:
    """eventsourcing's application: aggregates with typed events, saved after each command."""

    def __init__(self, folder: Path) -> None:
        from eventsourcing.application import Application as Its

        env = {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(folder / "events.db"),
            "SQLITE_POOL_SIZE": str(THREADS),
        }
        self.application: Any = Its(env=env)
        expect_full(folder / "events.db")

    def appender(self) -> Callable[[int], object]:
        """So many events of an aggregate in hand, and one save."""
        from benchmarks.carts import Cart

        cart = Cart()

        def append(count: int) -> None:
            for _ in range(count):
                cart.add("tea", 1, NOTE)
            self.application.save(cart)

        return append

    def reader(self, length: int) -> Callable[[], int]:
        """The aggregate, rebuilt from all events; the first is its creation."""
        from benchmarks.carts import Cart

        cart = Cart()
        for _ in range(length // 10):
            for _ in range(10):
                cart.add("tea", 1, NOTE)
            self.application.save(cart)
        return lambda: self.application.repository.get(cart.id).items  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close its connections."""
        self.application.close()


def expect_full(path: Path) -> None:
    """The peer's connections must wait for the disk as ours do."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        expect("synchronous (2: FULL)", connection.execute("PRAGMA synchronous").fetchone()[0], 2)
        expect("journal_mode", connection.execute("PRAGMA journal_mode").fetchone()[0], "wal")


def question(quick: bool) -> Question:
    """Appends and reads of both, on one disk, in turn."""
    appends = 100 if quick else 1000
    makers: dict[str, tuple[Callable[[Path], Streams], str]] = {
        OURS: (Tailrace, "stream.append(expected=…), stream.read()"),
        DECIDER: (Deciders, "typed events; decider.transact() with a cache, decider.state() without"),
        RECORDER: (Recorder, "SQLiteAggregateRecorder: insert_events(), select_events()"),
        APPLICATION: (Application, "typed events; aggregate in hand + save(), repository.get()"),
    }
    return Question(
        name="events",
        title="appends to event streams, and whole streams read, a second",
        note="Events of 200 bytes. Every append is one commit, WAL with synchronous=FULL on all sides; threads append "
        f"to streams of their own. A read is a whole stream of {LENGTH:,} events, decoded.",
        sides=[Side(name, f"synced; {mode}", partial(opened, make, appends)) for name, (make, mode) in makers.items()],
        figures=[ONE, TEN, MANY, MANY_TEN, READ],
        base=OURS,
        targets=[
            target
            for peer, many, one, read in ((RECORDER, 3, 1, 3), (APPLICATION, 5, 2, 8))
            for target in (
                at_least(MANY, peer, many),
                at_least(MANY_TEN, peer, many),
                at_least(ONE, peer, one),
                at_least(TEN, peer, one),
                at_least(READ, peer, read),
            )
        ],
        rounds=3 if quick else 7,
    )


def at_least(figure: Figure, peer: str, times: float) -> Target:
    """So many times what the peer makes."""

    def ratio(results: Results) -> float:
        return results.of(OURS, figure.name) / results.of(peer, figure.name)

    return Target(f"{figure.name}: ≥ {times:g} times {peer}", ratio, times)


@contextlib.contextmanager
def opened(make: Callable[[Path], Streams], appends: int, folder: Path) -> Iterator[Run]:
    """A store with a stream to read; one round appends in four ways, and reads."""
    streams = make(folder)
    read = streams.reader(LENGTH)
    expect("events read", read(), LENGTH)

    def run() -> Figures:
        return {
            ONE.name: rate(streams, appends, 1, 1),
            TEN.name: rate(streams, appends, 1, 10),
            MANY.name: rate(streams, appends, THREADS, 1),
            MANY_TEN.name: rate(streams, appends, THREADS, 10),
            READ.name: 20 / timed(lambda: [read() for _ in range(20)])[0],
        }

    try:
        yield run
    finally:
        streams.close()


def rate(streams: Streams, appends: int, threads: int, events: int) -> float:
    """Appends a second, each thread on a stream of its own."""
    each = max(1, appends // threads)

    def work(_: int) -> None:
        append = streams.appender()
        for _ in range(each):
            append(events)

    with ThreadPoolExecutor(threads) as pool:
        seconds, _ = timed(lambda: list(pool.map(work, range(threads))))
    return each * threads / seconds
