"""Missing events: events that a table's changes lack, read from the event store itself."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.events.reading import Forward
from tailrace.feed.epoch import IndexGap
from tailrace.feed.span import Span
from tailrace.storage.calls import Steps


def stored_spans(gaps: Iterable[IndexGap]) -> Steps[list[Span]]:
    """The spans of those events in the gaps that the store still has: pruned ones are left out."""
    found: list[Span] = []
    for gap in gaps:
        reader = Forward(gap.stream, gap.at - gap.missing)
        while page := (yield from reader.page()):
            wanted = [event for event in page if event.index < gap.at]
            if wanted:
                found.append(Span(gap.stream, wanted[0].index, tuple(event.type for event in wanted)))
            if len(wanted) < len(page):
                break
    return found
