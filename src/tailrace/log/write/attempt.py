"""Attempt: the writes that one attempt to append sends, what its refusal shows, and what makes the next attempt
possible.

ROLL     a writer that meets a full head closes its page
GROW     a roll that added partitions; chunks made for fewer partitions are made again, under another name
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, TypeVar

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered
from tailrace.coordination.rules import in_force
from tailrace.errors import Expected, OutcomeUnknown
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head
from tailrace.log.topic_log import TopicLog
from tailrace.log.write.placement import Placed
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Item

_log = logging.getLogger("tailrace")

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class FurtherWrites(Protocol):
    """Further writes of the same transaction: events, a dedup id, what a handler writes."""

    def actions(self, page: int) -> Sequence[Action]:
        """The writes as they are planned now; `page` is the page that the first chunk is sent to (-1: there is no
        chunk)."""

    def refused(self, index: int, item: Item | None) -> Steps[None]:
        """Called when the condition of one of these writes did not hold; `item` is the stored item.  It plans again, or
        raises.

        A `FinalRefusal` says that the transaction has not happened and cannot happen any more."""


class FinalRefusal(Exception):
    """Raised when no attempt can land any more, because one of the `FurtherWrites` was refused; `error` is for the
    caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Verdict(Protocol[R_co]):
    """How an append learns what became of its attempts: from its chunks' ids, or from a guard item."""

    def writes(self, placed: Sequence[Placed], pages: Sequence[int]) -> Sequence[Action]:
        """Further writes of the attempt that is sent now, right behind those that append the chunks."""

    def before_regrouping(self, placed: Sequence[Placed]) -> Steps[R_co | None]:
        """The result, if the append has happened; asked before the chunks are spread over more partitions."""

    def judge(
        self, placed: Sequence[Placed], pages: Sequence[int], actions: Sequence[list[Action]], outcome: guard.Outcome
    ) -> Steps[R_co | None]:
        """The result, if the outcome of an attempt decides it; else None, and it has taken the newest heads."""


def attempt_until_decided(
    placed: list[Placed], verdict: Verdict[R], others: FurtherWrites | None, patience: float
) -> Steps[R]:
    """Send attempts to append chunks, perhaps none, until the verdict knows the result."""
    began = None
    while True:
        pages, actions = yield from plan(placed)
        if in_force("grow.asked") and any(map(has_grown, placed)):
            result = yield from verdict.before_regrouping(placed)
        else:
            decisive = verdict.writes(placed, pages)
            also = others.actions(pages[0] if pages else -1) if others is not None else ()
            outcome = yield from guard.attempt(*chain(*actions), *decisive, *also, patience=patience)
            result = yield from verdict.judge(placed, pages, actions, outcome)
            if result is None:
                if isinstance(outcome, Unanswered):
                    began = yield from _wait(placed, began, patience)
                yield from tell_others(others, outcome, sum(map(len, actions)) + len(decisive))
        if result is not None:
            notify(placed)
            return result
        if placed:
            yield from prepare(placed)


def _wait(placed: Sequence[Placed], began: float | None, patience: float) -> Steps[float | None]:
    if placed:
        return (yield from wait_for_answer(placed[0].log, began, patience))
    yield from calls.pause(0)
    return began


def plan(placed: Sequence[Placed]) -> Steps[tuple[list[int], list[list[Action]]]]:
    """The page that each chunk is sent to, and the writes that append it there."""
    pages = []
    for p in placed:
        p.attempt.head = p.log.seen or (yield from p.log.head())
        if p.attempt.head.partitions < p.partitions:  # the seen head is older than the growth that the producer knew of
            p.attempt.head = yield from p.log.head()
        pages.append(p.attempt.head.page)
    return pages, [p.actions(page) for p, page in zip(placed, pages, strict=True)]


def has_grown(p: Placed) -> bool:
    """Whether the topic has more partitions than when the records were assigned to them; then they must be assigned
    again."""
    return p.attempt.head is not None and 0 < p.partitions < p.attempt.head.partitions and in_force("grow.partitions")


def see_heads(placed: Sequence[Placed], actions: Sequence[list[Action]], outcome: guard.Outcome) -> Steps[None]:
    """Update the heads: one from the item that came with the refusal, the others by reading them."""
    at = 0
    for p, acts in zip(placed, actions, strict=True):
        if isinstance(outcome, Refused) and outcome.index == at and outcome.item is not None:
            p.attempt.head = p.log.saw(outcome.item)
        else:
            p.attempt.head = yield from p.log.head()
        at += len(acts)


def wait_for_answer(log: TopicLog, began: float | None, patience: float) -> Steps[float]:
    """When the append began to wait for an answer; `OutcomeUnknown` once its patience has run out."""
    at = yield from calls.now()
    if began is not None and at - began > patience:
        raise OutcomeUnknown(
            f"an append to {log.name!r} had no answer for {at - began:.0f} s: it may be in the log, or come yet; "
            "open a new producer and read the topic's end before sending it again"
        )
    return at if began is None else began


def prepare(placed: list[Placed]) -> Steps[None]:
    """Make the next attempt possible: give the chunks new names if they are behind the fence, and roll a full head."""
    first = placed[0]
    assert first.attempt.head is not None
    if first.attempt.head.fence > first.gen or all(page < first.attempt.head.page for page in first.attempt.doubts):
        first.attempt.doubts.clear()
    for n, p in enumerate(placed):
        head = p.attempt.head or p.log.newest
        if p.expected and any(head.next[q] != at for q, at in p.expected.items()):
            actual = {q: head.next[q] for q in p.expected}
            raise Expected(f"the next offsets of {p.log.name!r} are {actual}, not {dict(p.expected)}", actual=actual)
        if head.fence > p.gen or has_grown(p) or (yield from _taken(p)):
            former = (*p.attempt.former, (p, frozenset(p.attempt.doubts)))
            placed[n] = yield from p.again()
            placed[n].attempt.former, p.attempt.became = former, placed[n]
        elif head.entry_bytes >= heads.MAX_ENTRY_BYTES:
            yield from roll(p.log, head)


def _taken(p: Placed) -> Steps[bool]:
    """Whether another chunk's item already has this chunk's key, because their ids end alike."""
    for entry in p.entries:
        if entry.id in p.data:
            stored = yield from guard.read(heads.chunk_key(p.log.id, entry.gen, entry.id))
            if stored is not None and stored["id"] != entry.id:
                return True
    return False


def roll(log: TopicLog, head: Head) -> Steps[Head]:
    """ROLL a full head, before the next attempt to append; returns the newest head, no matter which writer rolled
    it."""
    outcome = yield from guard.attempt(*heads.roll(log.id, head))
    if isinstance(outcome, Refused) and outcome.index == 1 and outcome.item is not None:
        return log.saw(outcome.item)
    return (yield from log.head())


def tell_others(others: FurtherWrites | None, outcome: guard.Outcome, first: int) -> Steps[None]:
    """Pass a refusal on to the `FurtherWrites`, if it concerns one of them; they begin at number `first`."""
    if others is not None and isinstance(outcome, Refused) and outcome.index >= first:
        yield from others.refused(outcome.index - first, outcome.item)


def notify(placed: Sequence[Placed]) -> None:
    """Wake the readers that wait for records of these topics, after an append."""
    for p in placed:
        try:
            p.log.on_commit()
        except Exception:
            _log.exception("a listener to appends of %r failed; the append is durable", p.log.name)
