"""The indexer and the reader of what it writes, on a table in memory."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import pytest

from tailrace.errors import BadInput, Damaged, MissingEvents, OutOfRange
from tailrace.events import Event
from tailrace.feed.epoch import EpochLimits
from tailrace.feed.index import Indexer, active_epoch, epoch_stream
from tailrace.feed.reading import IndexReader, SpanBatch, tail_of
from tailrace.feed.span import Span
from tailrace.storage.calls import Store
from tailrace.storage.tables import Delete, Key
from tailrace.testing import SimulatedObjects, SimulatedTable


@pytest.fixture
def store() -> Store:
    return Store(SimulatedTable(), SimulatedObjects())


def span(stream: str, first: int, types: str) -> Span:
    return Span(stream, first, tuple(types))


def read(store: Store, start: int = 0) -> list[SpanBatch]:
    reading, found = IndexReader(0, start), []
    while page := store.run(reading.page()):
        found += page
    return found


def events_in(entries: list[SpanBatch]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        for one in entry.spans:
            found[one.stream] += range(one.first, one.end)
    return found


def test_what_is_ingested_is_read_in_order_with_checkpoints(store: Store) -> None:
    indexer = Indexer()
    store.run(indexer.ingest([span("A-1", 0, "ab"), span("B-1", 0, "x")]))
    store.run(indexer.ingest([span("A-1", 1, "bc")]))
    assert not store.run(indexer.ingest([span("A-1", 0, "abc")])).spans
    assert read(store) == [
        SpanBatch(1, (span("A-1", 0, "ab"), span("B-1", 0, "x"))),
        SpanBatch(2, (span("A-1", 2, "c"),)),
    ]
    assert [entry.checkpoint for entry in read(store, 1)] == [2]
    assert read(store, 2) == []


def test_epochs_close_and_go_on_and_nothing_is_indexed_twice_across_them(store: Store) -> None:
    indexer = Indexer(limits=EpochLimits(max_version=2))
    for n in range(7):
        store.run(indexer.ingest([span("A-1", n, "x")]))
        store.run(Indexer(limits=EpochLimits(max_version=2)).ingest([span("A-1", 0, "x" * (n + 1))]))
    assert store.run(active_epoch(0)) == 3
    entries = read(store)
    assert events_in(entries) == {"A-1": list(range(7))}
    assert [entry.checkpoint for entry in entries] == [1, 2, 1_000_001, 1_000_002, 2_000_001, 2_000_002, 3_000_001]
    for n, entry in enumerate(entries):
        assert read(store, entry.checkpoint) == entries[n + 1 :]


def test_an_indexer_that_died_after_closing_is_followed_by_one_that_starts_the_next(store: Store) -> None:
    indexer = Indexer(limits=EpochLimits(max_version=1))
    store.run(indexer.ingest([span("A-1", 0, "a")]))
    assert store.run(active_epoch(0)) == 0 or read(store)
    store.run(Indexer(limits=EpochLimits(max_version=1)).ingest([span("A-1", 0, "ab")]))
    assert events_in(read(store)) == {"A-1": [0, 1]}


def test_two_indexers_at_once_take_each_event_once(store: Store) -> None:
    indexers = [Indexer(limits=EpochLimits(max_version=5)) for _ in range(3)]
    rng = random.Random(1)
    ends: dict[str, int] = defaultdict(int)
    for _ in range(200):
        stream = f"S-{rng.randint(0, 5)}"
        first = ends[stream]
        ends[stream] += rng.randint(1, 3)
        new = Span(stream, first, ("x",) * (ends[stream] - first))
        for indexer in rng.sample(indexers, rng.randint(1, 3)):
            store.run(indexer.ingest([new]))
    assert events_in(read(store)) == {stream: list(range(end)) for stream, end in ends.items()}


def test_a_gap_is_an_error_that_names_it_and_what_could_be_taken_was(store: Store) -> None:
    indexer = Indexer()
    with pytest.raises(MissingEvents, match="1 before A-1/2") as caught:
        store.run(indexer.ingest([span("A-1", 0, "a"), span("A-1", 2, "c"), span("B-1", 0, "x")]))
    assert [(gap.stream, gap.at, gap.missing) for gap in caught.value.gaps] == [("A-1", 2, 1)]
    assert events_in(read(store)) == {"A-1": [0], "B-1": [0]}
    store.run(indexer.ingest([span("A-1", 0, "abc")]))
    assert events_in(read(store))["A-1"] == [0, 1, 2]


def test_a_gap_that_another_indexer_fills_meanwhile_is_none() -> None:
    class Busy(SimulatedTable):
        """A table to which another indexer writes just before this one."""

        def write(self, *actions: Any) -> Any:
            if (spans := others.pop("now", None)) is not None:
                store.run(Indexer().ingest(spans))
            return super().write(*actions)

    others: dict[str, Any] = {}
    table = Busy()
    store = Store(table, SimulatedObjects(), sleep=lambda _: None)
    store.run(Indexer().ingest([span("A-1", 0, "a")]))
    others["now"] = [span("A-1", 1, "b")]
    done = store.run(Indexer().ingest([span("B-1", 0, "x"), span("A-1", 2, "c")]))
    assert (done.events, done.gaps) == (2, ())
    assert events_in(read(store)) == {"A-1": [0, 1, 2], "B-1": [0]}


def test_a_gap_may_be_only_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    indexer = Indexer(gaps="warn")
    store.run(indexer.ingest([span("A-1", 0, "a"), span("A-1", 2, "c")]))
    assert events_in(read(store)) == {"A-1": [0, 2]}
    assert "1 before A-1/2" in caplog.text


def test_what_old_epochs_took_is_forgotten_after_25_hours(store: Store) -> None:
    now = [1_800_000_000.0]
    indexer = Indexer(limits=EpochLimits(max_version=1), wall=lambda: now[0])
    for n in range(3):
        store.run(indexer.ingest([span(f"S-{n}", 0, "a")]))
    assert len(indexer._epoch.before) + len(indexer._epoch.next) == 3
    now[0] += 26 * 3600
    store.run(indexer.ingest([span("T-1", 0, "a")]))
    store.run(indexer.ingest([span("T-2", 0, "a")]))
    assert "S-0" not in indexer._epoch.before


def test_events_of_any_age_are_compared_with_the_whole_index(store: Store) -> None:
    now = [1_800_000_000.0]
    indexer = Indexer(limits=EpochLimits(max_version=1), wall=lambda: now[0])
    for n in range(3):
        store.run(indexer.ingest([span("A-1", n, "x")]))
        now[0] += 30 * 3600
    whole = Indexer(limits=EpochLimits(max_version=1), wall=lambda: now[0], remembered=math.inf)
    assert not store.run(whole.ingest([span("A-1", 0, "xxx")])).spans
    assert store.run(whole.ingest([span("A-1", 0, "xxxx")])).events == 1
    assert events_in(read(store)) == {"A-1": [0, 1, 2, 3]}


@pytest.mark.parametrize("wide", [1, 3000])
def test_a_batch_that_is_too_large_for_one_event_is_several(store: Store, wide: int) -> None:
    spans = [Span(f"Stream-{n}", 0, ("SomethingHappened",) * wide) for n in range(10_000 // wide)]
    done = store.run(Indexer().ingest(spans))
    assert (done.spans >= len(spans), done.events) == (True, len(spans) * wide)
    assert events_in(read(store)) == {one.stream: list(range(wide)) for one in spans}
    assert all(len(entry.spans) < 10_000 for entry in read(store))


@pytest.mark.parametrize("beyond", [2, 1_000_001, 2_000_000, 2**62])
def test_a_checkpoint_beyond_the_tail_is_refused(store: Store, beyond: int) -> None:
    store.run(Indexer().ingest([span("A-1", 0, "a")]))
    with pytest.raises(OutOfRange, match="beyond the tail"):
        store.run(IndexReader(0, beyond).page())


def test_a_checkpoint_behind_a_closed_epoch_is_the_beginning_of_the_next(store: Store) -> None:
    indexer = Indexer(limits=EpochLimits(max_version=2))
    for n in range(5):
        store.run(indexer.ingest([span("A-1", n, "x")]))
    found = [entry.checkpoint for entry in read(store)]
    assert found == [1, 2, 1_000_001, 1_000_002, 2_000_001]
    for start in (2, 3, 1_000_000):
        assert [entry.checkpoint for entry in store.run(IndexReader(0, start).page())] == [1_000_001, 1_000_002]
    with pytest.raises(OutOfRange):
        store.run(IndexReader(0, 4).page())


def test_the_tail_behind_an_epoch_that_has_just_been_closed(store: Store) -> None:
    indexer = Indexer()
    assert store.run(tail_of(0)) == (0, 0, 0)
    store.run(indexer.ingest([span("A-1", 0, "x")]))
    assert store.run(tail_of(0)) == (0, 1, 1)
    store.run(indexer._append(Event("Closed")))  # and the indexer dies before it starts the next
    epoch, batches, end = store.run(tail_of(0))
    assert (epoch, batches, end) == (0, 1, 1_000_000)
    reading = IndexReader(0)
    assert len(store.run(reading.page())) == 1
    assert store.run(reading.page()) == []
    assert reading.checkpoint == end
    store.run(Indexer().ingest([span("A-1", 1, "x")]))
    assert events_in(read(store, end)) == events_in(read(store, 2)) == {"A-1": [1]}
    assert store.run(tail_of(0)) == (1, 1, 1_000_001)


@pytest.mark.parametrize("wrong", [-1, "5", 1.5])
def test_what_is_no_checkpoint_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInput):
        IndexReader(0, wrong)


def test_a_reader_at_the_tail_goes_on_when_there_is_more(store: Store) -> None:
    indexer, reading = Indexer(limits=EpochLimits(max_version=2)), IndexReader(0)
    found: list[SpanBatch] = []
    for n in range(9):
        store.run(indexer.ingest([span("A-1", n, "x")]))
        while page := store.run(reading.page()):
            found += page
    assert events_in(found) == {"A-1": list(range(9))}


def test_an_epoch_that_somebody_deleted_is_damage(store: Store) -> None:
    indexer = Indexer(limits=EpochLimits(max_version=1))
    for n in range(3):
        store.run(indexer.ingest([span("A-1", n, "x")]))
    store.table.write(Delete(Key(epoch_stream(0, 1), 2**31 - 1)))
    with pytest.raises(Damaged, match="index rebuild --all"):
        read(store)
    with pytest.raises(Damaged, match="index rebuild --all"):
        store.run(Indexer().ingest([span("A-1", 3, "x")]))
