"""Scrub: checks each item of the streams in the order of a scan, and that the items of a stream form a chain."""

from __future__ import annotations

from tailrace.coordination import guard
from tailrace.errors import Damaged
from tailrace.events.reading import Forward
from tailrace.events.tip import TIP, Tip, check_batch, tip_key
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item


class StreamCheck:
    """Checks the items of streams in the order of a scan; names the streams that must be read again as a whole.

    A scan shows items as of different moments, so a stream that looks wrong in a scan may be right."""

    def __init__(self) -> None:
        self.streams = 0
        self._stream, self._due = "", -1

    def take(self, item: Item) -> str | None:
        """Check one item; returns the name of the stream that looks damaged with it."""
        stream: str = item["p"]
        before, due = self._stream, self._due
        if stream != before:
            self.streams += 1
            self._stream, due = stream, -1
        ended = before if stream != before and self._due >= 0 else None
        try:
            first = check_batch(stream, item)
            if item["i"] == TIP:
                floor = Tip.of(stream, item).floor
                self._due = -1
                return stream if max(due, floor) != first else ended
        except Damaged:
            self._due = -1
            return stream
        self._due = item["n"]
        return stream if due not in (-1, first) else ended

    def end(self) -> str | None:
        """Called after the last item: the name of a stream whose Tip was missing."""
        return self._stream if self._due >= 0 else None


def scrub_stream(stream: str, archived: bool = False) -> Steps[Damaged | None]:
    """Read a stream from its floor to its end; returns the damage in it.  In an archive a stream has no Tip."""
    try:
        forward = Forward(stream)
        while not forward.done:
            yield from forward.page()
        if not archived and forward.tip is None and (yield from guard.truth(tip_key(stream))) is None:
            return Damaged(f"the Tip of stream {stream!r} is not there", where=stream, position=TIP)
    except Damaged as error:
        return error
    return None
