"""Appending: bytes first, then one guarded write of the head.  The protocol of tests/model, step by step.

    put      the chunk under a name never used before; nothing refers to it yet
    APPEND   one update of the head makes it true, and answers the offsets
    LOOK     after a missing answer: did it happen, on which offsets, can it still?
    ROLL     whoever meets a full head closes its page
    GROW     a roll that adds partitions; chunks made for fewer are spread anew, under another name

An append is exact through its chunk's id: the id is in the head or on the page the attempt was sent to, or it can never
land.  With a guard (a named producer, a pipeline's reader) the guard's own item says so instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import in_force
from tailrace.errors import Conflict, Expected, OutcomeUnknown, TimedOut, UnknownTopic
from tailrace.log import head as heads
from tailrace.log.chunk import Chunk
from tailrace.log.head import Entry, Head
from tailrace.log.looking import GONE, find
from tailrace.log.regrouping import refit
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Item

_log = logging.getLogger("tailrace")


@dataclass(slots=True)
class Log:
    """What an append needs to know of a topic: its name and id, how small a chunk is kept inline, and the newest
    head seen (a stale one is safe and costs another round)."""

    name: str
    id: str
    inline_bytes: int = 0
    joins_inline: bool = False
    new_id: Callable[[], str] = heads.new_id
    seen: Head | None = None
    partitions: int = 0
    """How many partitions it is known to have; 0 before a head was read."""
    on_commit: Callable[[], object] = lambda: None
    """Called after each append made here, to wake who waits for it."""

    def head(self) -> Steps[Head]:
        """The newest head, read now."""
        item = yield from guard.read(heads.head_key(self.id))
        return self.saw(item)

    def saw(self, item: Item | None) -> Head:
        """Remember a head that an answer showed."""
        if item is None:
            raise UnknownTopic(f"topic {self.name!r} was deleted")
        self.seen = Head(item)
        self.partitions = self.seen.partitions
        return self.seen

    @property
    def newest(self) -> Head:
        """The newest head seen so far."""
        assert self.seen is not None, "no head was read yet"
        return self.seen


@dataclass(slots=True)
class Placed:
    """Chunks of one topic whose bytes are stored, not yet referred to.  `data` has those that go with the reference,
    by id; `again` stores them once more under new names."""

    log: Log
    entries: tuple[Entry, ...]
    again: Callable[[], Steps[Placed]]
    data: Mapping[str, bytes] = field(default_factory=dict)
    expected: Mapping[int, int] | None = None
    partitions: int = 0
    """How many partitions the topic had when its records were given theirs; 0: that does not matter."""
    doubts: set[int] = field(default_factory=set)
    """The pages that attempts without an answer were sent to."""
    former: tuple[tuple[Placed, frozenset[int]], ...] = ()
    """What it was before a fence made it take other names, and the pages in doubt then."""
    head: Head | None = None
    """The head that this append decides by; `log.seen` may be another thread's by then."""
    sent: int | None = None
    """The page that the attempt under way was sent to; whoever takes over from an interrupted thread finds it here."""
    became: Placed | None = None
    """The same chunk under the names that it took since; whoever takes over goes on with these."""

    @property
    def latest(self) -> Placed:
        """The chunk under its newest names."""
        return self if self.became is None else self.became.latest

    @property
    def id(self) -> str:
        """The id of the first chunk, which stands for all: they are appended together."""
        return self.entries[0].id

    @property
    def gen(self) -> int:
        """The oldest gen among its names."""
        return min(e.gen for e in self.entries)

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition."""
        return heads.counts_of(self.entries)

    def actions(self, page: int) -> list[Action]:
        """The writes that make it true, the head's first."""
        head = heads.append(self.log.id, page, self.entries, self.expected)
        return [head, *(heads.chunk_item(self.log.id, e, self.data[e.id]) for e in self.entries if e.id in self.data)]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a chunk's records are: the first offset of each partition (None: committed, and the page is gone)."""

    offsets: Mapping[int, int] | None
    counts: Mapping[int, int]
    partitions: int = 0
    """How many partitions its records were spread over, if that is known."""


class Guard(Protocol):
    """An item that is written in the same transaction as the append and says whether it happened."""

    def action(self, id: str, page: int) -> Action:
        """The guarded write that goes with the append of this chunk, sent to this page."""

    def read(self) -> Steps[Item]:
        """The item as stored now."""

    def moved(self, item: Item) -> bool:
        """Whether the item is no longer as it was when the append was planned."""


# --- put --------------------------------------------------------------------------------------------------------------
def place(log: Log, chunk: Chunk, expected: Mapping[int, int] | None = None) -> Steps[Placed]:
    """Store a chunk's bytes.  A put without an answer is left behind, for cleaning; the next has another name."""
    if log.seen is None:
        yield from log.head()
    if 0 < chunk.partitions < log.newest.partitions and in_force("grow.partitions"):
        chunk = refit(log.name, chunk, log.newest, expected)
    return (yield from guard.persist(lambda: _place(log, chunk, expected), (*guard.NOT_DONE, TimedOut, Conflict)))


def _place(log: Log, chunk: Chunk, expected: Mapping[int, int] | None) -> Steps[Placed]:
    id, gen = log.new_id(), log.newest.gen
    again = lambda: place(log, chunk, expected)  # noqa: E731
    if chunk.size > log.inline_bytes:
        entry = Entry(id, False, gen, chunk.kind, chunk.runs)
        yield from calls.put_object(heads.object_name(log.id, gen, id), chunk.parts)
        return Placed(log, (entry,), again, expected=expected, partitions=chunk.partitions)
    data, runs = chunk.inline()
    entry = Entry(id, True, gen, chunk.kind, runs)
    if log.joins_inline:
        return Placed(log, (entry,), again, {id: data}, expected, chunk.partitions)
    yield from calls.write(heads.chunk_item(log.id, entry, data))
    return Placed(log, (entry,), again, expected=expected, partitions=chunk.partitions)


# --- append -----------------------------------------------------------------------------------------------------------
def commit(placed: Sequence[Placed], patience: float = guard.PATIENCE) -> Steps[list[Appended]]:
    """APPEND chunks, each of another topic, all or none; `OutcomeUnknown` when it fails while in doubt."""
    placed = list(placed)
    try:
        return (yield from _commit(placed, patience))
    except (Expected, OutcomeUnknown, UnknownTopic):
        raise
    except Exception as error:
        if not placed[0].doubts:
            raise
        raise OutcomeUnknown(
            f"an append to {placed[0].log.name!r} may be in the log, or come yet: {error}; open a new producer and "
            "read the topic's end before sending it again"
        ) from error


def _commit(placed: list[Placed], patience: float) -> Steps[list[Appended]]:
    began = None
    placed[:] = [p.latest for p in placed]
    if (found := (yield from _sent_before(placed))) is not None:
        return found
    while True:
        pages, actions = yield from _actions(placed)
        if in_force("grow.asked") and any(map(_grown, placed)):
            if (found := (yield from _found(placed))) is not None:
                _tell(placed)
                return found
            yield from _prepare(placed)
            continue
        for p, page in zip(placed, pages, strict=True):
            p.sent = page
        outcome = yield from guard.attempt(*chain(*actions), patience=patience)
        if isinstance(outcome, Unanswered) or (isinstance(outcome, Written) and outcome.items is None):
            for p, page in zip(placed, pages, strict=True):
                p.doubts.add(page)
        if isinstance(outcome, Written):
            _tell(placed)
            return (yield from _offsets(placed, pages, actions, outcome.items))
        for p in placed:
            p.sent = None
        yield from _see(placed, actions, outcome)
        if isinstance(outcome, Unanswered):
            began = yield from _waited(placed[0].log, began, patience)
        if (found := (yield from _found(placed))) is not None:
            _tell(placed)
            return found
        yield from _prepare(placed)


def _sent_before(placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
    """What became of an attempt whose thread was interrupted: until that is known, there may be no other."""
    if all(p.sent is None for p in placed):
        return None
    for p in placed:
        if p.sent is not None:
            p.doubts.add(p.sent)
        p.head = yield from p.log.head()
    found = yield from _found(placed)
    if found is not None:
        _tell(placed)
    return found


def _tell(placed: Sequence[Placed]) -> None:
    for p in placed:
        try:
            p.log.on_commit()
        except Exception:
            _log.exception("a listener to appends of %r failed; the append is durable", p.log.name)


def _actions(placed: Sequence[Placed]) -> Steps[tuple[list[int], list[list[Action]]]]:
    pages = []
    for p in placed:
        p.head = p.log.seen or (yield from p.log.head())
        if p.head.partitions < p.partitions:  # it was seen long ago, and told by another thread just now
            p.head = yield from p.log.head()
        pages.append(p.head.page)
    return pages, [p.actions(page) for p, page in zip(placed, pages, strict=True)]


def _grown(p: Placed) -> bool:
    """Whether the topic has more partitions than its records were spread over: they may not be appended like this."""
    return p.head is not None and 0 < p.partitions < p.head.partitions and in_force("grow.partitions")


def _offsets(
    placed: Sequence[Placed], pages: Sequence[int], actions: Sequence[list[Action]], items: Sequence[Item | None] | None
) -> Steps[list[Appended]]:
    """It happened: from the answer, or where the table does not say, from the page each chunk was sent to."""
    out, at = [], 0
    for p, page, acts in zip(placed, pages, actions, strict=True):
        if items is None:
            out.append((yield from _located(p, {page})))
        else:
            counts, next = p.counts, p.log.saw(items[at]).item["nx"]
            out.append(Appended({q: next[str(q)] - n for q, n in counts.items()}, counts, p.partitions))
        at += len(acts)
    return out


def _located(p: Placed, pages: Iterable[int]) -> Steps[Appended]:
    """The offsets of a chunk that is certainly in the log; a plain read may not show it yet."""
    while True:
        head = yield from p.log.head()
        for was, sent_to in (p, pages), *p.former:
            found = yield from find(p.log, head, was.id, was.gen, sent_to)
            if found is not None:
                return Appended(found or None, was.counts, was.partitions)
        yield from calls.pause(0)


def _see(placed: Sequence[Placed], actions: Sequence[list[Action]], outcome: guard.Outcome) -> Steps[None]:
    """The newest heads: the one that a refusal shows, or read anew."""
    at = 0
    for p, acts in zip(placed, actions, strict=True):
        if isinstance(outcome, Refused) and outcome.index == at and outcome.item is not None:
            p.head = p.log.saw(outcome.item)
        else:
            p.head = yield from p.log.head()
        at += len(acts)


def _waited(log: Log, began: float | None, patience: float) -> Steps[float]:
    """When the waiting for an answer began; not for ever."""
    at = yield from calls.now()
    if began is not None and at - began > patience:
        raise OutcomeUnknown(
            f"an append to {log.name!r} had no answer for {at - began:.0f} s: it may be in the log, or come yet; "
            "open a new producer and read the topic's end before sending it again"
        )
    return at if began is None else began


def _found(placed: Sequence[Placed]) -> Steps[list[Appended] | None]:
    """The offsets if the append has happened, else None.  One transaction changes all heads, so the first answers
    for all."""
    first = placed[0]
    assert first.head is not None
    offsets = yield from find(first.log, first.head, first.id, first.gen, first.doubts)
    if offsets is None:
        return None
    if offsets is GONE:
        raise OutcomeUnknown(
            f"an append to {first.log.name!r} had no answer, and upkeep has since removed or merged the page it was "
            "sent to: it was in the log, or never will be; nobody can tell any more"
        )
    out = [Appended(offsets, first.counts, first.partitions)]
    for p in placed[1:]:
        out.append((yield from _located(p, p.doubts)))
    return out


def _prepare(placed: list[Placed]) -> Steps[None]:
    """Make the next attempt possible: another name behind the fence, room in the head."""
    first = placed[0]
    assert first.head is not None
    if first.head.gc > first.gen or all(page < first.head.page for page in first.doubts):
        first.doubts.clear()
    for n, p in enumerate(placed):
        head = p.head or p.log.newest
        if p.expected and any(head.next[q] != at for q, at in p.expected.items()):
            actual = {q: head.next[q] for q in p.expected}
            raise Expected(f"the next offsets of {p.log.name!r} are {actual}, not {dict(p.expected)}", actual=actual)
        if head.gc > p.gen or _grown(p) or (yield from _taken(p)):
            former = (*p.former, (p, frozenset(p.doubts)))
            placed[n] = yield from p.again()
            placed[n].former, p.became = former, placed[n]
        elif head.b >= heads.FULL:
            yield from roll(p.log, head)


def _taken(p: Placed) -> Steps[bool]:
    """Whether another chunk's item has this one's key, because their ids end alike."""
    for entry in p.entries:
        if entry.id in p.data:
            stored = yield from guard.read(heads.chunk_key(p.log.id, entry.gen, entry.id))
            if stored is not None and stored["id"] != entry.id:
                return True
    return False


def roll(log: Log, head: Head) -> Steps[Head]:
    """ROLL, by whoever meets a full head; gives the newest head, rolled by this one or by another."""
    outcome = yield from guard.attempt(*heads.roll(log.id, head))
    if isinstance(outcome, Refused) and outcome.index == 1 and outcome.item is not None:
        return log.saw(outcome.item)
    return (yield from log.head())


# --- append with a guard ----------------------------------------------------------------------------------------------
def commit_guarded(placed: Sequence[Placed], decider: Guard) -> Steps[tuple[bool, Item | None]]:
    """APPEND in one transaction with a guard item, which alone says whether it happened: (won, the item if read)."""
    placed, began = list(placed), None
    mine = set()
    while True:
        mine.add(placed[0].id)
        pages, actions = yield from _actions(placed)
        if in_force("grow.asked") and any(map(_grown, placed)):
            yield from _prepare(placed)
            continue
        outcome = yield from guard.attempt(*chain(*actions), decider.action(placed[0].id, pages[0]))
        if isinstance(outcome, Written):
            _tell(placed)
            return True, None
        if isinstance(outcome, Refused) and outcome.index == sum(map(len, actions)) and outcome.item is not None:
            item = outcome.item
        else:
            item = yield from decider.read()
        if item.get("id") in mine:
            _tell(placed)
            return True, item
        if decider.moved(item):
            return False, item
        if isinstance(outcome, Unanswered):
            began = yield from _waited(placed[0].log, began, guard.PATIENCE)
        yield from _see(placed, actions, outcome)
        yield from _prepare(placed)
