"""Appending: bytes first, then one guarded write of the head.  The protocol of tests/model, step by step.

    put      the chunk under a name never used before; nothing refers to it yet (placement.py)
    APPEND   one update of the head refers to it, and answers the offsets
    LOOK     after a missing answer: did it happen, on which offsets, can it still? (lookup.py)

The chunk's id makes an append exact: either the id is in the head or on the page that the attempt was sent to, or the
append can never land.  An append with a guard item is in guarded_append.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.guard import Unanswered, Written
from tailrace.errors import Expected, OutcomeUnknown, UnknownTopic
from tailrace.log.write.attempt import FinalRefusal, FurtherWrites, attempt_until_decided, notify, see_heads
from tailrace.log.write.lookup import GONE, find
from tailrace.log.write.placement import Placed
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Item


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a chunk's records are: the first offset of each partition (None: committed, but the page is gone)."""

    offsets: Mapping[int, int] | None
    counts: Mapping[int, int]
    partitions: int = 0
    """How many partitions its records were assigned to, if that is known."""


def commit(
    placed: Sequence[Placed], patience: float = guard.PATIENCE, others: FurtherWrites | None = None
) -> Steps[list[Appended]]:
    """APPEND chunks, each of another topic, and perhaps further writes: all or nothing.  `OutcomeUnknown` if it gives
    up in doubt."""
    placed = list(placed)
    try:
        placed[:] = [p.latest for p in placed]
        found = yield from _sent_before(placed)
        return found if found is not None else (yield from attempt_until_decided(placed, ById(), others, patience))
    except (Expected, OutcomeUnknown, UnknownTopic):
        raise
    except FinalRefusal as refusal:
        raise refusal.error from None
    except Exception as error:
        if not placed[0].attempt.doubts:
            raise
        raise OutcomeUnknown(
            f"an append to {placed[0].log.name!r} may be in the log, or come yet: {error}; open a new producer and "
            "read the topic's end before sending it again"
        ) from error


class ById:
    """Whether an append has happened is said by the ids in the head, or on the page that an attempt was sent to."""

    def writes(self, placed: Sequence[Placed], pages: Sequence[int]) -> Sequence[Action]:
        """Add no writes: the ids of the chunks show whether the append has happened. From here on it may have."""
        for p, page in zip(placed, pages, strict=True):
            p.attempt.sent = page
        return ()

    def before_regrouping(self, placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
        """The offsets, if an earlier attempt has appended the chunks."""
        return (yield from _found(placed))

    def judge(
        self, placed: Sequence[Placed], pages: Sequence[int], actions: Sequence[list[Action]], outcome: guard.Outcome
    ) -> Steps[list[Appended] | None]:
        """The offsets, if this attempt or an earlier one has appended the chunks."""
        if isinstance(outcome, Unanswered) or (isinstance(outcome, Written) and outcome.items is None):
            for p, page in zip(placed, pages, strict=True):
                p.attempt.doubts.add(page)
        if isinstance(outcome, Written):
            return (yield from _offsets(placed, pages, actions, outcome.items))
        for p in placed:
            p.attempt.sent = None
        yield from see_heads(placed, actions, outcome)
        return (yield from _found(placed))


def _sent_before(placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
    """Find out what became of an attempt whose thread was interrupted; no other attempt may begin before that is
    known."""
    if all(p.attempt.sent is None for p in placed):
        return None
    for p in placed:
        if p.attempt.sent is not None:
            p.attempt.doubts.add(p.attempt.sent)
        p.attempt.head = yield from p.log.head()
    found = yield from _found(placed)
    if found is not None:
        notify(placed)
    return found


def _offsets(
    placed: Sequence[Placed], pages: Sequence[int], actions: Sequence[list[Action]], items: Sequence[Item | None] | None
) -> Steps[list[Appended]]:
    """The result of an append that happened: from the answer, or, where the table does not give it, from the page that
    each chunk was sent to."""
    out, at = [], 0
    for p, page, acts in zip(placed, pages, actions, strict=True):
        if items is None:
            out.append((yield from _located(p, {page})))
        else:
            counts, next = p.counts, p.log.saw(items[at]).next
            out.append(Appended({q: next[q] - n for q, n in counts.items()}, counts, p.partitions))
        at += len(acts)
    return out


def _located(p: Placed, pages: Iterable[int]) -> Steps[Appended]:
    """The offsets of a chunk that is certainly in the log, although a plain read may not show it yet."""
    while True:
        head = yield from p.log.head()
        for was, sent_to in (p, pages), *p.attempt.former:
            found = yield from find(p.log, head, was.id, was.gen, sent_to)
            if found is not None:
                return Appended(found or None, was.counts, was.partitions)
        yield from calls.pause(0)


def _found(placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
    """The offsets if the append has happened, else None.  One transaction changes all heads, so the first answers
    for all."""
    first = placed[0]
    assert first.attempt.head is not None
    offsets = yield from find(first.log, first.attempt.head, first.id, first.gen, first.attempt.doubts)
    if offsets is None:
        return None
    if offsets is GONE:
        raise OutcomeUnknown(
            f"an append to {first.log.name!r} had no answer, and upkeep has since removed or merged the page it was "
            "sent to: the records were in the log, or never will be; read the topic before you send them again"
        )
    out = [Appended(offsets, first.counts, first.partitions)]
    for p in placed[1:]:
        out.append((yield from _located(p, p.attempt.doubts)))
    return out
