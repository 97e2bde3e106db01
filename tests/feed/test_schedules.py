"""Random lives of the index: spans come again, in other batches, to several indexers, over storage that loses answers;
indexers die at any call.  What a reader of the feed gets is what happened."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import MissingEvents, TailraceError
from tailrace.feed import index as indexing
from tailrace.feed.epoch import EpochLimits
from tailrace.feed.index import Indexer
from tailrace.feed.reading import IndexReader
from tailrace.feed.span import Span
from tailrace.storage.calls import Call, Store
from tailrace.testing import Faults, SimulatedObjects, SimulatedTable

SEEDS = 60


class Died(Exception):
    """The process ended here."""


class Mortal(Store):
    """A store of a process that dies at a call, or never."""

    __slots__ = ("left",)

    def answer(self, call: Call) -> Any:
        self.left -= 1
        assert self.left > -5_000, "asks for ever"
        if self.left == 0:
            raise Died
        return Store.answer(self, call)


def schedule(seed: int) -> None:
    """One life of an index."""
    rng = random.Random(seed)
    faults = Faults(seed, lost=0.03, landed=0.03, throttled=0.03) if rng.random() < 0.7 else None
    table = SimulatedTable(faults=faults, answers=rng.random() < 0.5)

    def store() -> Mortal:
        made = Mortal(table, SimulatedObjects(), sleep=lambda _: None, rng=rng)
        made.left = rng.randint(1, 60) if rng.random() < 0.5 else -1
        return made

    limits = EpochLimits(max_version=rng.choice([2, 5, 50]), max_streams=rng.choice([3, 1000]))
    processes = [(store(), Indexer(limits=limits)) for _ in range(2)]
    happened: list[Span] = []
    ends: dict[str, int] = defaultdict(int)
    done = 0  # a table's stream gives again what was not yet said to be handled, and perhaps some before it
    for _ in range(40):
        for _ in range(rng.randint(0, 4)):
            stream = f"S-{rng.randint(0, 4)}"
            span = Span(stream, ends[stream], tuple(rng.choice("abc") for _ in range(rng.randint(1, 3))))
            ends[stream] = span.end
            happened.append(span)
        n = rng.randrange(2)
        first = max(done - rng.choice([0, 0, 3, 20]), 0)
        last = rng.randint(first, len(happened))
        given = happened[first:last]
        if rng.random() < 0.2:  # as a backfill does, which takes what an item of the store has
            given = [*whole(happened[:last]), *given]
        try:
            processes[n][0].run(processes[n][1].ingest(given))
            done = max(done, last) if first <= done else done
        except MissingEvents:
            raise
        except (Died, TailraceError):
            processes[n] = (store(), Indexer(limits=limits))
    table.faults = None
    calm = Store(table, SimulatedObjects(), sleep=lambda _: None)
    calm.run(Indexer(limits=limits).ingest(happened[done:]))
    compare(calm, happened, rng)


def whole(spans: list[Span]) -> list[Span]:
    """All events of each stream in one span."""
    types: dict[str, list[str]] = defaultdict(list)
    for span in spans:
        types[span.stream] += span.types
    return [Span(stream, 0, tuple(all_of)) for stream, all_of in types.items()]


def compare(store: Store, happened: list[Span], rng: random.Random) -> None:
    """Every event once, in order for each stream, with its type; and from any checkpoint on, the rest."""
    entries = []
    reading = IndexReader(0)
    while page := store.run(reading.page()):
        entries += page
    found: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        for span in entry.spans:
            assert span.first == len(found[span.stream]), f"{span} comes after {len(found[span.stream])} events"
            found[span.stream] += span.types
    wanted: dict[str, list[str]] = defaultdict(list)
    for span in happened:
        wanted[span.stream] += span.types
    assert found == wanted
    checkpoints = [entry.checkpoint for entry in entries]
    assert checkpoints == sorted(set(checkpoints))
    if entries:
        n = rng.randrange(len(entries))
        again, reading = [], IndexReader(0, entries[n].checkpoint)
        while page := store.run(reading.page()):
            again += page
        assert again == entries[n + 1 :]


@pytest.mark.parametrize("many", [SEEDS, pytest.param(20_000, marks=pytest.mark.soak)])
def test_random_lives(many: int) -> None:
    first = int(os.environ.get("TAILRACE_SEED", "0"))
    for seed in range(first, first + many):
        try:
            schedule(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def _without_before(self: Indexer, number: int) -> Any:
    yield from _open(self, number)
    self._epoch.before = {}


def _blind_append(self: Indexer, event: Any) -> Any:
    stream = indexing.epoch_stream(self.partition, self._number)
    part = indexing.part(stream, [event], (), self.settings)
    yield from indexing.commit([part], self.settings)
    self._epoch.fold([event])


_open = Indexer._open

MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an overlap is taken whole": lambda patch: patch.setattr(Span, "since", lambda self, index: self),
    "closed epochs are forgotten": lambda patch: patch.setattr(Indexer, "_open", _without_before),
    "appends wherever the epoch is": lambda patch: patch.setattr(Indexer, "_append", _blind_append),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_missed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            schedule(seed)
