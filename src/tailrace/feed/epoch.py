"""Epochs: which spans of a batch are new, and when an epoch is full.  Pure.

An epoch is itself a stream of events, `$AppendsEpoch-<partition>_<epoch>`: an `Ingested` event for each batch that had
new events, then `Closed`.  In an epoch a stream may begin at any index; from there on its events follow each other
without gap or repetition.  An indexer also remembers the indices of recently closed epochs, so that an event that is
delivered again after its epoch was closed is not stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tailrace.events.event import Event
from tailrace.feed.span import Span

INGESTED, CLOSED = "Ingested", "Closed"

MAX_BYTES = 1024 * 1024
MAX_VERSION = 5_000
MAX_STREAMS = 100_000


class IndexGap(NamedTuple):
    """Events that the table's changes lack: `missing` of them before the index `at` of the stream."""

    stream: str
    at: int
    missing: int


class NewSpans(msgspec.Struct, frozen=True):
    """The new spans of one batch of changes: of streams that the epoch did not have (`added`), and of those it had."""

    added: tuple[Span, ...] = ()
    appended: tuple[Span, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.appended)

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans, of new and of known streams."""
        return (*self.added, *self.appended)

    def encode(self) -> Event:
        """The `Ingested` event that stores this batch."""
        body = {"add": [_encoded(span) for span in self.added], "app": [_encoded(span) for span in self.appended]}
        return Event(INGESTED, msgspec.json.encode({name: spans for name, spans in body.items() if spans}))


class _Stored(msgspec.Struct):
    p: str
    i: int
    c: tuple[str, ...]


class _Body(msgspec.Struct):
    add: tuple[_Stored, ...] = ()
    app: tuple[_Stored, ...] = ()


def _encoded(span: Span) -> dict[str, object]:
    return {"p": span.stream, "i": span.first, "c": span.types}


def decode(event: Event) -> NewSpans:
    """The batch of an `Ingested` event."""
    body = msgspec.json.decode(event.data, type=_Body)
    return NewSpans(*(tuple(Span(s.p, s.i, s.c) for s in some) for some in (body.add, body.app)))


@dataclass(slots=True)
class Epoch:
    """The state of an epoch by its events: the next index of each of its streams, its size, and whether it is closed.

    `before` has the next indices in recently closed epochs; a stream in neither may begin at any index."""

    before: Mapping[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    version: int = 0
    bytes: int = 0
    closed: bool = False

    def fold(self, events: Iterable[Event]) -> None:
        """Apply the epoch's stored events to this state."""
        for event in events:
            self.version += 1
            if event.type == CLOSED:
                self.closed = True
            elif event.type == INGESTED:
                self.bytes += len(event.data)
                for span in decode(event).spans:
                    self.next[span.stream] = span.end

    def ingest(self, spans: Iterable[Span], *, over_gaps: bool = False) -> tuple[NewSpans, list[IndexGap]]:
        """Return the new events among these, in order and each once, and the gaps where events are missing.

        Events behind a gap in their stream are not returned, unless `over_gaps`."""
        taken: dict[str, Span] = {}
        gaps: dict[str, IndexGap] = {}
        skipped: list[Span] = []
        for span in spans:
            had = taken.get(span.stream)
            expected = had.end if had else self._expected(span)
            if span.end <= expected or (span.stream in gaps and not over_gaps):
                continue
            if span.first > expected:
                gaps[span.stream] = IndexGap(span.stream, span.first, span.first - expected)
                if not over_gaps:
                    continue
                expected = span.first
            new = span.since(expected)
            if had and had.end < new.first:
                skipped.append(had)
                had = None
            taken[span.stream] = Span(span.stream, had.first, had.types + new.types) if had else new
        found = [*skipped, *taken.values()]
        added = tuple(span for span in found if span.stream not in self.next)
        appended = tuple(span for span in found if span.stream in self.next)
        return NewSpans(added, appended), list(gaps.values())

    def _expected(self, span: Span) -> int:
        if span.stream in self.next:
            return self.next[span.stream]
        return self.before.get(span.stream, span.first)

    def full(self, limits: EpochLimits) -> bool:
        """Whether the epoch should be closed."""
        return (
            self.bytes > limits.max_bytes or self.version >= limits.max_version or len(self.next) >= limits.max_streams
        )


@dataclass(frozen=True, slots=True)
class EpochLimits:
    """The size at which an indexer closes an epoch: above `max_bytes`, or from `max_version` events or `max_streams`
    streams on."""

    max_bytes: int = MAX_BYTES
    max_version: int = MAX_VERSION
    max_streams: int = MAX_STREAMS
