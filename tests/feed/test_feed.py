"""The feed of a home: what was there before, what comes, filters and checkpoints, and an indexer that is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import tailrace
from tailrace.coordination.lease import Lease
from tailrace.errors import ForeignIndex, OutOfRange
from tailrace.events import Event
from tailrace.feed import indexing
from tailrace.feed.feed import Feed, FeedEvent
from tailrace.home import Home
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Key, Put, Regardless, Remove, Set, Update


@pytest.fixture(params=["memory", "disk"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with tailrace.open("memory://" if request.param == "memory" else tmp_path / "home") as home:
        yield home


def until(feed: Feed, count: int, seconds: float = 60.0) -> list[FeedEvent]:
    """The next events of a feed, as many as are expected."""
    found: list[FeedEvent] = []
    for event in feed.follow(seconds=seconds):
        found.append(event)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} events came")


def ordered(events: list[FeedEvent]) -> dict[str, list[int]]:
    """The indices of each stream, as they came."""
    found: dict[str, list[int]] = defaultdict(list)
    for event in events:
        found[event.stream].append(event.index)
    return found


def test_what_was_appended_before_anybody_asked_is_in_the_feed(home: Home) -> None:
    events = home.events(max_events=3)
    for n in range(10):
        events.stream("Cart-1").append([Event("Added", b"%d" % n)])
    events.stream("Order-1").append([Event("Placed"), Event("Paid")])
    home.topic("noise", 1).append([(b"k", b"v")])
    with events.feed() as feed:
        found = until(feed, 12)
        assert ordered(found) == {"Cart-1": list(range(10)), "Order-1": [0, 1]}
        assert [event.data for event in found if event.stream == "Cart-1"] == [b"%d" % n for n in range(10)]
        events.stream("Cart-1").append([Event("Removed", b"x")])
        (last,) = until(feed, 1)
        assert (last.stream, last.index, last.type, last.data) == ("Cart-1", 10, "Removed", b"x")
    with events.feed(last.checkpoint) as rest:
        assert list(rest) == []


def test_filters_and_checkpoints_that_move_over_what_they_leave_out(home: Home) -> None:
    events = home.events()
    for n in range(20):
        events.stream(f"Cart-{n}").append([Event("Added"), Event("Removed")])
        events.stream(f"Order-{n}").append([Event("Placed")])
    until(events.feed(), 60)
    assert len(list(events.feed(category="Order"))) == 20
    assert len(list(events.feed(category=["Order", "Cart"], type="Removed"))) == 20
    assert [(e.stream, e.index) for e in events.feed(stream="Cart-7")] == [("Cart-7", 0), ("Cart-7", 1)]
    assert all(event.event is None for event in events.feed(bodies=False))
    nothing = events.feed(category="Nothing")
    assert list(nothing) == []
    assert nothing.checkpoint > 0
    assert list(events.feed(nothing.checkpoint)) == []
    with pytest.raises(OutOfRange):
        list(events.feed(nothing.checkpoint + 1))


def test_going_on_from_any_checkpoint_misses_nothing(home: Home) -> None:
    events = home.events()
    feed = events.feed()
    for n in range(10):
        events.stream(f"A-{n % 3}").append([Event("x"), Event("y")])
        until(feed, 2)
    whole = [(event.stream, event.index) for event in events.feed()]
    assert len(whole) == 20
    seen = list(events.feed())
    for n, event in enumerate(seen):
        rest = [(e.stream, e.index) for e in events.feed(event.checkpoint)]
        assert whole[: n + 1] + [one for one in rest if one not in whole[: n + 1]] == whole
        assert rest == whole[len(whole) - len(rest) :]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_loop_that_was_left_can_be_gone_on_with(home: Home, partitions: int) -> None:
    events = home.events()
    events.create_index(partitions)
    for n in range(12):
        events.stream(f"A-{n}").append([Event("x")])
        events.catch_up()
    feed = events.feed()
    first = next(iter(feed)).stream
    assert sorted([first, *(event.stream for event in feed)]) == sorted(f"A-{n}" for n in range(12))
    assert list(feed) == []


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("way", ["__iter__", "batches"])
def test_a_loop_that_was_left_behind_the_last_event_is_not_repeated_from_the_checkpoint(
    home: Home, partitions: int, way: str
) -> None:
    events = home.events()
    events.create_index(partitions)
    for n in range(6):
        events.stream(f"A-{n}").append([Event("x")])
    events.catch_up()
    feed = events.feed()
    left = 6
    while left:
        found = next(iter(getattr(feed, way)()))
        left -= len(found) if isinstance(found, list) else 1
    assert list(events.feed(feed.positions)) != [], "what was given last is not handled before the caller asks for more"
    assert list(feed) == []
    assert list(events.feed(feed.positions)) == []


def test_a_pruned_event_is_in_the_feed_without_its_body(home: Home) -> None:
    events = home.events(max_events=2)
    stream = events.stream("Cart-1")
    for n in range(5):
        stream.append([Event("Added", b"%d" % n)])
    until(events.feed(), 5)
    stream.prune(1)
    found = list(events.feed())
    assert [event.event and event.event.data for event in found] == [None, None, b"2", b"3", b"4"]


def test_appends_of_many_threads_are_all_in_the_feed_once(home: Home) -> None:
    events = home.events(max_events=5)
    feed = events.feed()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(50):
            events.stream(f"S-{rng.randint(0, 9)}").append([Event("x")] * rng.randint(1, 3))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = {f"S-{n}": events.stream(f"S-{n}").version for n in range(10)}
    found = until(feed, sum(versions.values()))
    assert ordered(found) == {stream: list(range(n)) for stream, n in versions.items() if n}


WRITER = """
import sys, tailrace
from tailrace.events import Event
home = tailrace.open(sys.argv[1])
events = home.events()
feed = events.feed()
print("ready", flush=True)
n = 0
while True:
    events.stream(f"S-{n % 7}").append([Event("x", b"%d" % n)])
    n += 1
    if n % 10 == 0:
        list(feed)
"""


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_an_indexer_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    for _ in range(rounds):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "home")], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.2, 1.5))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        versions = {f"S-{n}": events.stream(f"S-{n}").version for n in range(7)}
        assert sum(versions.values()) > 0
        found = until(events.feed(), sum(versions.values()))
        assert ordered(found) == {stream: list(range(n)) for stream, n in versions.items() if n}
        assert len(list(events.feed(bodies=False))) == sum(versions.values())


def test_a_copy_of_a_home_goes_on_with_the_feed_and_indexes_nothing_twice(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        for n in range(20):
            events.stream(f"S-{n % 3}").append([Event("x")])
        before = until(events.feed(), 20)
        home.copy(tmp_path / "copy")
    with tailrace.open(tmp_path / "copy") as home:
        events = home.events()
        feed = events.feed(before[-1].checkpoint)
        events.stream("S-1").append([Event("y")])
        (event,) = until(feed, 1)
        assert (event.stream, event.type) == ("S-1", "y")
        assert len(list(events.feed())) == 21


class Killed(BaseException):
    """The process ends here."""


def killed_once_noted(home: Home, name: str) -> None:
    """Let this home's indexer end right after it has noted a value under this name."""
    noted = indexing.note

    def note(lease: Lease, *changes: Set) -> Steps[None]:
        yield from noted(lease, *changes)
        if any(change.path == name and change.value for change in changes):
            raise Killed

    with patch.object(indexing, "note", note):
        home.events().feed()
        assert home._indexing is not None
        home._indexing._thread.join(20)
    assert isinstance(home._indexing.failure, Killed)


def filling_was_killed(place: Path) -> Iterator[Home]:
    """A home whose first filling was killed behind the stored events, to one of whose streams another came then."""
    with tailrace.open(place) as home:
        for n in range(3):
            home.events().stream(f"S-{n}").append([Event("x")])
        killed_once_noted(home, "after")
        home.events().stream("S-0").append([Event("late")])
        yield home


def all_are_indexed(place: Path) -> None:
    with tailrace.open(place) as home, home.events().feed() as feed:
        assert ordered(until(feed, 4)) == {"S-0": [0, 1], "S-1": [0], "S-2": [0]}


def test_a_copy_whose_indexer_is_killed_before_it_has_filled_a_page_fills_from_the_start(tmp_path: Path) -> None:
    """What the source's capture has, and its index has not, is in no capture of the copy."""
    for home in filling_was_killed(tmp_path / "home"):
        home.copy(tmp_path / "copy")
    with tailrace.open(tmp_path / "copy") as home:
        killed_once_noted(home, "stream")
    all_are_indexed(tmp_path / "copy")


def test_a_filling_that_goes_on_a_day_later_misses_nothing_that_came_meanwhile(tmp_path: Path) -> None:
    for home in filling_was_killed(tmp_path / "home"):
        a_day_later(home)
    all_are_indexed(tmp_path / "home")


def test_an_index_of_another_store_is_refused_until_it_is_made_again(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "one") as home:
        home.events().stream("Cart-1").append([Event("Added")])
        home.events().catch_up()
        foreign = home.store.table.get(Key("$Indexing"))
        assert foreign is not None
        assert foreign["store"] == home.id
    with tailrace.open(tmp_path / "two") as home:
        home.events().stream("Cart-2").append([Event("Added")])
        item = {"filled": True, "partitions": 1, "store": foreign["store"]}
        home.store.table.write(Put(Key("$Indexing"), item, (Regardless(),)))
        for use in (home.events().feed, lambda: home.events().create_index(1), home.events().rebuild_index):
            with pytest.raises(ForeignIndex, match=r"rebuild --all"):
                use()
        assert home.events().rebuild_index(all=True) == 1
        with home.events().feed() as feed:
            assert [event.stream for event in until(feed, 1)] == ["Cart-2"]


def test_an_index_from_before_stores_had_ids_is_taken_on_first_use(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        home.events().stream("Cart-1").append([Event("Added")])
        home.events().catch_up()
    with tailrace.open(tmp_path / "home") as home:
        home.store.table.write(Update(Key("$Indexing"), (Remove("store"),), (Regardless(),)))
        home.events().stream("Cart-1").append([Event("Added")])
        with home.events().feed() as feed:
            assert [event.index for event in until(feed, 2)] == [0, 1]
        stored = home.store.table.get(Key("$Indexing"))
        assert stored is not None
        assert stored["store"] == home.id


def a_day_later(home: Home) -> None:
    """Make what was captured, and the indexer's token, older than changes are kept."""
    home.store.table.database.write(  # type: ignore[attr-defined]
        lambda cursor: cursor.execute("UPDATE items_changes SET at = at - 25 * 3600 * 1000")
    )
    item = home.store.table.get(Key("$Indexing"))
    assert item is not None
    if item["token"] is not None:
        home.store.table.write(Update(Key("$Indexing"), (Set(("token", "at"), item["token"]["at"] - 25 * 3600),)))


def test_a_home_that_nobody_indexed_for_longer_than_changes_are_kept(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        events.stream("A-1").append([Event("x")])
        feed = events.feed()
        until(feed, 1)
        events.stream("A-1").append([Event("x")])
        until(feed, 1)
        assert home._indexing is not None
        home._indexing.close()  # a home that is open, and has no indexer for a while
        for n in range(5):
            events.stream("A-1").append([Event("late")])
            events.stream(f"B-{n}").append([Event("late")])
        a_day_later(home)
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        found = until(events.feed(), 12)
        assert ordered(found) == {"A-1": list(range(7)), **{f"B-{n}": [0] for n in range(5)}}
        events.stream("A-1").append([Event("new")])
        assert [event.type for event in until(events.feed(found[-1].checkpoint), 1)] == ["new"]


def test_the_memory_of_the_feed_does_not_grow_with_bodies(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        home.events().feed().close()
        home.events().catch_up()
        assert home._indexing is not None
        home._indexing.close()
        for n in range(60):
            home.events(compression="none").stream(f"A-{n}").append([Event("x", b"y" * 300_000)])
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        tracemalloc.start()
        try:
            events.catch_up()
            indexing = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            with events.feed() as feed:
                assert sum(len(batch) for batch in feed.batches()) == 60
            reading = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert indexing < 9_000_000, "half of what the bodies have"
    assert reading < 15_000_000


def test_a_clock_that_is_set_back_does_not_stop_the_indexing(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        home.events().feed().close()
        home.events().catch_up()
        item = home.store.table.get(Key("$Indexing"))
        assert item is not None
        assert item["token"]["shards"][0].get("after") is None
        home.store.table.write(Update(Key("$Indexing"), (Set(("token", "at"), int(time.time()) + 3600),)))
    with tailrace.open(tmp_path / "home") as home:
        events = home.events()
        events.stream("A-1").append([Event("x")])
        feed = events.feed()
        assert ordered(until(feed, 1)) == {"A-1": [0]}
        events.stream("A-1").append([Event("x")])
        assert ordered(until(feed, 1)) == {"A-1": [1]}
        assert events.index_status().trouble is None


def test_events_pruned_before_anybody_indexed_them_are_said_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tailrace.open(tmp_path / "home") as home:
        events = home.events(max_events=1)
        stream = events.stream("A-1")
        stream.append([Event("x")])
        until(events.feed(), 1)
        assert home._indexing is not None
        home._indexing.close()
        for _ in range(3):
            stream.append([Event("x")])
        stream.prune(2)
        a_day_later(home)
    with tailrace.open(tmp_path / "home") as home:
        events = home.events(max_events=1)
        feed = events.feed()
        assert ordered(until(feed, 2)) == {"A-1": [0, 3]}
        events.stream("A-1").append([Event("y")])
        assert ordered(until(feed, 1)) == {"A-1": [4]}
    assert "2 before A-1/3" in caplog.text


def test_another_process_takes_indexing_over_when_the_first_ends(tmp_path: Path) -> None:
    first, second = (tailrace.open(tmp_path / "home") for _ in range(2))
    with second:
        with first:
            one, two = first.events(), second.events()
            one.stream("A-1").append([Event("x")])
            feed = two.feed()
            until(one.feed(), 1)
            until(feed, 1)
        two.stream("A-1").append([Event("y")])
        (event,) = until(feed, 1)
        assert event.type == "y"
