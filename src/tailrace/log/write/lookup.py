"""Lookup: after a missing answer, did the append happen, on which offsets, and can it still happen?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged
from tailrace.log.format.head import Head
from tailrace.log.read.pages import look
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps

GONE: Mapping[int, int] = {}
"""The offsets of a chunk whose page retention has removed."""


def find(log: TopicLog, head: Head, id: str, gen: int, pages: Iterable[int]) -> Steps[Mapping[int, int] | None]:
    """The first offsets of a chunk.  GONE if retention removed its page, or merging forgot its id; None if the log does
    not have it.

    `pages` are those that unanswered attempts were sent to.  A page that the head has left without the chunk can never
    take it.  Without an unanswered attempt no page can have the chunk, so only the head is searched.  Merging forgets
    only ids of chunks behind the fence."""
    if id in head.ids:
        return head.own.offsets_of(id)
    gone = False
    for number in sorted(n for n in pages if n < head.page):
        try:
            page = yield from look(log, number)
        except Damaged:  # a reader of this page gets the error; with the page, it is lost whether the chunk was on it
            page = None
        if page is None:
            gone = True
        elif (offsets := page.offsets_of(id)) is not None:
            return offsets
        elif page.forgot and in_force("look.forgot"):
            gone = gone or gen < (yield from log.head()).fence
    return GONE if gone else None
