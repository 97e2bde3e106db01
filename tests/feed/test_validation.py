"""The index compared with the store, and repaired: gaps that stop the indexer, holes, damage, interruptions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import Busy, MissingEvents
from tailrace.events import Event
from tailrace.events.store import Events
from tailrace.feed.index import Indexer, epoch_stream
from tailrace.feed.reading import IndexReader
from tailrace.feed.span import Span
from tailrace.feed.store import FedEvents
from tailrace.feed.validation import EventRange as Some
from tailrace.feed.validation import rebuild, validate
from tailrace.home import Home
from tailrace.storage.calls import Store
from tailrace.storage.tables import Delete, Key
from tailrace.testing import SimulatedObjects, SimulatedTable
from tests.feed.test_feed import ordered, until


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


def filled(home: Home, streams: int = 5, each: int = 4) -> FedEvents:
    events = home.events(max_events=2)
    for n in range(streams * each):
        events.stream(f"S-{n % streams}").append([Event("x", b"%d" % n)])
    return events


def lose_a_change(home: Home) -> None:
    """Take the change of S-0's event 4 out of the capture, as if it never came."""
    home.store.table.database.write(  # type: ignore[attr-defined]
        lambda cursor: cursor.execute("DELETE FROM items_changes WHERE n = (SELECT max(n) FROM items_changes)")
    )


def stuck(folder: Path) -> None:
    """A home whose changes lack one event before another of its stream."""
    with tailrace.open(folder) as home:
        events = filled(home)
        events.catch_up()
    with tailrace.open(folder) as home:
        events = home.events(max_events=2)
        events.stream("S-0").append([Event("lost")])
        lose_a_change(home)
        events.stream("S-1").append([Event("y")])  # takes the number that became free
        events.stream("S-0").append([Event("z")])


def wait_for(what: Any, seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_an_indexer_that_misses_events_says_so_and_goes_on_after_the_repair(tmp_path: Path) -> None:
    stuck(tmp_path / "home")
    with tailrace.open(tmp_path / "home") as home, tailrace.open(tmp_path / "home") as other:
        events = home.events()
        feed = events.feed(1)
        with pytest.raises(MissingEvents, match=r"1 before S-0/5.*`tailrace events index rebuild`"):
            until(feed, 7)
        trouble = wait_for(lambda: other.events().index_status().trouble)
        assert trouble["kind"] == "MissingEvents"
        assert "S-0/5" in trouble["error"]
        found = validate(other.store)
        assert found.behind == (Some("S-0", 4, 6),)
        assert not found.needs_all
        assert rebuild(other.store) == 2
        wait_for(lambda: other.events().index_status().trouble is None)
        wait_for(lambda: home._indexing.failure is None)  # type: ignore[union-attr]
        whole = list(events.feed())
        assert ordered(whole) == {"S-0": [*range(6)], "S-1": [*range(5)], **{f"S-{n}": [*range(4)] for n in (2, 3, 4)}}
        events.stream("S-0").append([Event("on")])
        assert until(events.feed(), 24)[-1].type == "on", "the same home goes on, without being opened again"
        assert events.validate_index().ok


def test_validate_names_holes_doubles_and_what_no_stream_has(home: Home) -> None:
    events = filled(home)
    events.catch_up()
    home._indexing.close()  # type: ignore[union-attr]
    assert events.validate_index().ok
    run = home.store.run
    events.stream("T-1").append([Event("x")] * 5)
    run(Indexer(gaps="warn").ingest([Span("T-1", 3, ("x", "x"))]))
    run(Indexer(gaps="warn").ingest([Span("U-1", 0, ("x",))]))
    run(Indexer(remembered=0).ingest([Span("S-9", 0, ("x",))]))
    found = events.validate_index()
    assert found.holes == (Some("T-1", 0, 3),)
    assert {one.stream for one in found.unknown} == {"U-1", "S-9"}
    assert found.needs_all
    assert not found.ok


def test_rebuild_all_keeps_order_and_loses_nothing_for_old_checkpoints(home: Home) -> None:
    events = filled(home)
    events.catch_up()
    old = [event.checkpoint for event in events.feed(bodies=False)]
    with pytest.raises(Busy, match="another process indexes"):
        monkey_rebuild(home)
    home._indexing.close()  # type: ignore[union-attr]
    assert rebuild(home.store, all=True) == 20
    assert events.validate_index().ok
    for start in {0, *old}:
        assert ordered(list(events.feed(start))) == {f"S-{n}": [*range(4)] for n in range(5)}


def monkey_rebuild(home: Home) -> None:
    import tailrace.feed.validation as module

    before, module.WAIT_SECONDS = module.WAIT_SECONDS, 0.0
    try:
        rebuild(home.store, all=True)
    finally:
        module.WAIT_SECONDS = before


@pytest.mark.parametrize("hidden", [0, 2, 4])
def test_a_rebuild_finds_what_a_torn_scan_leaves_out(hidden: int) -> None:
    """A scan that comes by while a Tip calves may show the new Tip and not the calf."""

    class Torn(SimulatedTable):
        def scan(self, after: Any = None) -> Any:
            return [item for item in super().scan(after) if (item["p"], item["i"]) != ("S-1", hidden)]

    store = Store(Torn(), SimulatedObjects())
    events = Events(store, max_events=2)
    for _ in range(7):
        events.stream("S-1").append([Event("x")])
    assert store.table.get(Key("S-1", hidden)) is not None
    assert rebuild(store) == 7
    reading, spans = IndexReader(0), list[Span]()
    while page := store.run(reading.page()):
        spans += [span for entry in page for span in entry.spans]
    assert [n for span in spans for n in range(span.first, span.end)] == list(range(7))


def test_an_epoch_that_was_deleted_by_hand_is_found_and_made_again(home: Home) -> None:
    events = filled(home)
    events.catch_up()
    home._indexing.close()  # type: ignore[union-attr]
    rebuild(home.store, all=True)
    events.stream("S-0").append([Event("more")])
    home.store.table.write(Delete(Key(epoch_stream(0, 0), 2**31 - 1)))
    found = events.validate_index()
    assert found.damaged
    assert "index rebuild --all" in found.damaged
    assert rebuild(home.store, all=True) == 21
    assert events.validate_index().ok
    assert ordered(list(events.feed()))["S-0"] == [*range(5)]


class Killed(BaseException):
    """The process ends here."""


def killed_at(table: Any, number: int) -> list[int]:
    """Have a write raise once, before or after it is done; gives the number of writes so far."""
    write, count = table.write, [0]

    def counted(*actions: Any) -> Any:
        count[0] += 1
        if count[0] * 2 - 1 == number:
            raise Killed
        done = write(*actions)
        if count[0] * 2 == number:
            raise Killed
        return done

    table.write = counted
    return count


def test_a_rebuild_that_is_cut_off_anywhere_is_finished_by_whoever_indexes_next(monkeypatch: Any) -> None:
    monkeypatch.setattr("tailrace.feed.indexing.TAKE_OVER_SECONDS", 0.01)
    step = 4  # a process that dies while it takes the lease has changed nothing, and keeps others waiting
    while True:
        step += 1
        with tailrace.open("memory://") as home:
            events = filled(home, 3, 3)
            events.catch_up()
            home._indexing.close()  # type: ignore[union-attr]
            home._indexing = None
            count = killed_at(home.store.table, step)
            try:
                rebuild(home.store, all=True)
                finished = True
            except Killed:
                finished = False
            del home.store.table.write  # type: ignore[attr-defined]
            events.stream("S-0").append([Event("more")])
            events.catch_up()
            assert events.validate_index().ok, f"killed at {step}"
            assert ordered(list(events.feed())) == {"S-0": [*range(4)], "S-1": [*range(3)], "S-2": [*range(3)]}
            if finished and step > 2 * count[0]:
                break
    assert step > 15
