"""Validation: compares the index with the events themselves, and repairs it from them.

`validate` reads both and names the events that only one of them has.  `rebuild` adds the events that the index lacks at
the end of their streams.  Events that it lacks before others of their stream cannot be added in order: then
`rebuild(all=True)` makes the whole index again, in epochs behind the current ones.  So no checkpoint skips an event
that its reader has not seen: a reader that resumes from an old checkpoint gets every event again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.lease import Lease
from tailrace.errors import Busy, Damaged
from tailrace.events.reading import read_tip
from tailrace.feed.index import Indexer
from tailrace.feed.indexing import LEASE, fill, note, remake, stored_span
from tailrace.feed.reading import IndexReader
from tailrace.feed.state import look, partitions_of, settled, take_over
from tailrace.storage.calls import Store
from tailrace.storage.tables import Key, Set

WAIT_SECONDS = 15.0


class EventRange(NamedTuple):
    """Consecutive events of a stream, from `first` up to, but not including, `end`."""

    stream: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of comparing the index with the store."""

    streams: int = 0
    events: int = 0
    """The number of events in the store."""
    indexed: int = 0
    """The number of events in the index."""
    behind: tuple[EventRange, ...] = ()
    """Events of the store that the index lacks at the end of their streams."""
    holes: tuple[EventRange, ...] = ()
    """Events of the store that the index lacks before others of their streams."""
    unknown: tuple[EventRange, ...] = ()
    """Events of the index that no stream of this store ever had: the index may be another store's."""
    doubled: int = 0
    """Events that are in the index more than once."""
    damaged: str | None = None
    """Why the index could not be read to its end; None if it could."""

    @property
    def ok(self) -> bool:
        """Whether the index has every event of the store once."""
        return not (self.behind or self.needs_all)

    @property
    def needs_all(self) -> bool:
        """Whether only `rebuild(all=True)` repairs the index."""
        return bool(self.holes or self.unknown or self.doubled or self.damaged)


def validate(store: Store, told: Callable[[int], object] = lambda _: None) -> Validation:
    """Compare the index with the store; `told` is called with the number of events read so far.

    Keeps an entry for each stream in memory."""
    there = _stored(store, told)
    found = Validation(len(there), sum(end - first for first, end in there.values()))
    known: dict[str, list[tuple[int, int]]] = {}
    indexed = 0
    try:
        for stream, first, end in _indexed(store):
            spans = known.setdefault(stream, [])
            joined = spans.pop()[0] if spans and spans[-1][1] == first else first
            spans.append((joined, end))
            indexed += end - first
            told(found.events + indexed)
    except Damaged as error:
        found = replace(found, damaged=str(error))
    found = replace(found, indexed=indexed)
    behind: list[EventRange] = []
    holes: list[EventRange] = []
    unknown: list[EventRange] = []
    doubled = 0
    for stream, (first, end) in there.items():
        spans = known.get(stream, [])
        last = max((high for _, high in spans), default=0)
        for gap in _missing(stream, first, end, spans):
            (holes if gap.end <= last else behind).append(gap)
    for stream, spans in known.items():
        doubled += _doubled(spans)
        last = max(high for _, high in spans)
        if last > there.get(stream, (0, 0))[1] and last > (version := store.run(read_tip(stream)).version):
            unknown.append(EventRange(stream, version, last))
    return replace(found, behind=tuple(behind), holes=tuple(holes), unknown=tuple(unknown), doubled=doubled)


def _stored(store: Store, told: Callable[[int], object]) -> dict[str, tuple[int, int]]:
    """The lowest stored index and the next index of each stream that has events."""
    found: dict[str, tuple[int, int]] = {}
    after: Key | None = None
    count = 0
    while items := store.run(guard.some(after)):
        for item in items:
            if (span := stored_span(item)) is not None:
                low, high = found.get(span.stream, (span.first, span.end))
                found[span.stream] = min(low, span.first), max(high, span.end)
                count += len(span.types)
        told(count)
        after = Key(items[-1]["p"], items[-1]["i"])
    return found


def _indexed(store: Store) -> Iterator[EventRange]:
    for partition in range(partitions_of(store.run(look()))):
        reading = IndexReader(partition)
        while page := store.run(reading.page()):
            for entry in page:
                for span in entry.spans:
                    yield EventRange(span.stream, span.first, span.end)


def _missing(stream: str, first: int, end: int, spans: list[tuple[int, int]]) -> Iterator[EventRange]:
    for low, high in sorted(spans):
        if first < low:
            yield EventRange(stream, first, min(low, end))
        first = max(first, high)
        if first >= end:
            return
    yield EventRange(stream, first, end)


def _doubled(spans: list[tuple[int, int]]) -> int:
    twice, reached = 0, 0
    for low, high in sorted(spans):
        twice += max(min(high, reached) - low, 0)
        reached = max(reached, high)
    return twice


# --- repairing --------------------------------------------------------------------------------------------------------
def rebuild(store: Store, *, all: bool = False, told: Callable[[int], object] = lambda _: None) -> int:
    """Add the events that the index lacks, or make the whole index again with `all`; returns how many were added.

    `told` is called with the number so far.  If it is interrupted, the next call continues.  `Busy` with `all` if
    another process indexes."""
    count = partitions_of(store.run(look()))
    with Lease(store, LEASE) as lease:
        alone = lease.acquire(WAIT_SECONDS if all else 0)
        if all and not alone:
            raise Busy(
                f"another process indexes this home ({_who(lease)}); an index is made again while no process reads "
                "the feed: end that process, and run this again"
            )
        if all:
            store.run(take_over())
            store.run(settled())
            store.run(note(lease, Set("remake", True)))
            remake(store, lease, count)
        added = 0
        for _, taken in fill(store, [Indexer(partition) for partition in range(count)]):
            added += taken
            told(added)
        if alone:
            store.run(settled())
            store.run(note(lease, Set("filled", True), Set("after", None), Set("trouble", None)))
    return added


def _who(lease: Lease) -> str:
    holder = lease.holder()
    return f"process {holder['pid']} on {holder['host']}" if holder else "it has just ended"
