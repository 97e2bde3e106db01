"""Spans: which events an append added to which stream.  The feed is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.storage.changes import Change
from tailrace.storage.tables import Item


class Span(NamedTuple):
    """Consecutive events of one stream: the index of the first, and the type of each."""

    stream: str
    first: int
    types: tuple[str, ...]

    @property
    def end(self) -> int:
        """The index behind the last event."""
        return self.first + len(self.types)

    def since(self, index: int) -> Span:
        """The events of this span from an index on."""
        return Span(self.stream, index, self.types[index - self.first :]) if index > self.first else self


def span_of(change: Change) -> Span | None:
    """The events that a change of the event store's table added; None if it added none.

    Only a Tip says what was appended: a calf has no `a`, nor has a Tip whose unfolds alone were replaced."""
    item = change.new
    if change.kind == "REMOVE" or item is None or str(item["p"]).startswith("$") or not item.get("a"):
        return None
    return appended(item)


def appended(tip: Item) -> Span:
    """The events of a Tip's last append."""
    added = int(tip["a"])
    return Span(tip["p"], tip["n"] - added, tuple(tip["c"][-added:]))


def spans_of(changes: Iterable[Change]) -> Sequence[Span]:
    """The spans of the appends among these changes, in their order."""
    return [span for change in changes if (span := span_of(change)) is not None]
