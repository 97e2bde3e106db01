"""Mutants: the log with one rule taken away.  Each must be caught by some schedule, as it is in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Unanswered, Written
from tailrace.coordination.rules import without
from tailrace.errors import ObjectMissing, OutcomeUnknown
from tailrace.log.format import head as heads
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.run import read_runs
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import merge
from tailrace.log.write import append, attempt, lookup, source_append
from tailrace.log.write.append import Appended
from tailrace.log.write.placement import Attempt, Placed
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Action, Item, Put
from tests.log import growing

Mutant = Callable[[], AbstractContextManager[Any]]


def off(*names: str) -> Mutant:
    """The log without some rules."""
    return lambda: without(*names)


def patched(target: Any, name: str, new: Any) -> Mutant:
    """The log with another function in the place of one of its own."""
    return lambda: patch.object(target, name, new)


# --- append
_found, _prepare, _waited, _look, _see = (
    append._found,
    attempt.prepare,
    attempt.wait_for_answer,
    lookup.look,
    attempt.see_heads,
)


def _fence_first(placed: list[Placed]) -> Steps[list[Appended] | None]:
    if placed[0].log.newest.fence > placed[0].gen:
        return None
    return (yield from _found(placed))


def _always_look(placed: list[Placed]) -> Steps[list[Appended] | None]:
    for p in placed:
        p.attempt.doubts.update(range(p.log.newest.page))
    return (yield from _found(placed))


def _look_by_number(log: TopicLog, number: int) -> Steps[Page | None]:
    item = yield from guard.read(heads.page_key(log.id, number))
    return Page.of(item) if item else None


def _missing_is_gone(log: TopicLog, number: int) -> Steps[Page | None]:
    items, _ = yield from guard.read_range(heads.head_key(log.id).p, 0, number, descending=True, limit=1)
    return Page.of(items[0]) if items and items[0]["last"] >= number else None


def _give_up(log: TopicLog, began: float | None, patience: float) -> Steps[float]:
    raise OutcomeUnknown("a deadline passed")
    yield


@contextmanager
def _gives_up() -> Iterator[None]:
    """A producer that goes on with its next batch although the last is in doubt."""
    with patch.object(attempt, "wait_for_answer", _give_up), patch("tests.log.actors.honest"):
        yield


def _compares_nothing(placed: list[Placed]) -> Steps[list[Appended] | None]:
    yield from placed[0].log.head()
    return None


@contextmanager
def _no_compare() -> Iterator[None]:
    """Every refusal is called lost, and the records are sent again under a new id."""

    def prepare(placed: list[Placed]) -> Steps[None]:
        yield from _prepare(placed)
        for n, p in enumerate(placed):
            placed[n] = yield from p.again()

    with patch.object(append, "_found", _compares_nothing), patch.object(attempt, "prepare", prepare):
        yield


@contextmanager
def _new_id_after_timeout() -> Iterator[None]:
    def prepare(placed: list[Placed]) -> Steps[None]:
        doubts = [bool(p.attempt.doubts) for p in placed]
        yield from _prepare(placed)
        for n, p in enumerate(placed):
            if doubts[n]:
                placed[n] = yield from p.again()

    with patch.object(attempt, "prepare", prepare):
        yield


@contextmanager
def _same_name() -> Iterator[None]:
    """A fenced chunk is not put again: its entry only claims a newer gen."""

    def prepare(placed: list[Placed]) -> Steps[None]:
        for n, p in enumerate(placed):
            if p.log.newest.fence > p.gen:
                entry = replace(p.entries[0], gen=p.log.newest.gen)
                placed[n] = Placed(p.log, (entry,), p.again, p.data, attempt=Attempt(head=p.attempt.head))
        yield from _prepare(placed)

    with patch.object(attempt, "prepare", prepare):
        yield


# --- roll
def _roll_puts_head(topic_id: str, head: Head) -> tuple[Action, ...]:
    page, update = _roll(topic_id, head)
    item = {k: v for k, v in head.item.items() if k not in ("p", "i", "ids")}
    item |= {"page": head.page + 1, "k": 0, "b": 0, "e": []}
    return page, Put(heads.head_key(topic_id), item, update.when)


_roll = heads.roll


# --- merge, for what LOOK must find
@contextmanager
def _forgets_ids() -> Iterator[None]:
    actions = merge._actions

    def forgetful(log: TopicLog, pages: Any, entries: list[ChunkEntry], gen: int) -> list[Action]:
        return actions(log, pages, [replace(entry, made_of=()) for entry in entries], gen)

    with patch.object(merge, "_actions", forgetful):
        yield


# --- readers
def _no_base_check(self: Reader, page: Page, wanted: list[int]) -> Steps[Page | None]:
    items, _ = yield from guard.read_range(heads.head_key(self.log.id).p, page.last + 1, 2**63 - 2, limit=1)
    found = Page.of(items[0]) if items else None
    for q in wanted:
        if found and found.base[q] > self.positions[q]:
            self.positions[q] = found.base[q]
    return found


def _next_number(self: Reader, page: Page, wanted: list[int]) -> Steps[Page | None]:
    item = yield from guard.read(heads.page_key(self.log.id, page.first + 1))
    found = Page.of(item) if item else page
    for q in wanted:
        if found.base[q] > self.positions[q]:
            self.positions[q] = found.base[q]
    return found


@contextmanager
def _next_numbers() -> Iterator[None]:
    """A page that was read is followed by the one with the next number; there is no seeking from there."""
    seeks = Reader._seek

    def seek(self: Reader, head: Head, wanted: list[int]) -> Steps[Page | None]:
        return self._page if self._page is not None else (yield from seeks(self, head, wanted))

    with patch.object(Reader, "_following", _next_number), patch.object(Reader, "_seek", seek):
        yield


def _skip_missing(
    self: Reader, page: Page, entry: ChunkEntry, runs: list[Any], at: Any, here: dict[int, int]
) -> Steps[list[Fetched] | None]:
    try:
        yield from read_runs(self.log.id, entry, runs)
    except ObjectMissing:
        for run in runs:
            here[run.partition] = at[run.partition] + run.count
        return []
    return (yield from _reads(self, page, entry, runs, at, here))


_reads = Reader._read


# --- a serial source
def _without_id(placed: list[Placed], progress: source_append.SourceGuard) -> Steps[tuple[bool, Item]]:
    """ "It was mine if the number moved by one", without looking at the id."""
    while True:
        outcome = yield from guard.attempt(
            *placed[0].actions((yield from placed[0].log.head()).page), progress.action(placed[0].id, 0)
        )
        item = yield from progress.read()
        if isinstance(outcome, (Written, Unanswered)) and item["seq"] == progress.seen["seq"] + 1:
            return True, {**item, "position": progress.position}
        if progress.moved(item):
            return False, item
        if isinstance(outcome, Refused):
            yield from _see(placed, [placed[0].actions(0)], outcome)
            yield from _prepare(placed)
        yield from calls.pause(0)


MUTANTS: Mapping[str, tuple[Mutant, str]] = {
    "append.page": (off("append.page"), "append clean"),
    "append.gc": (off("append.gc"), "append clean"),
    "append.b": (off("append.b"), "append"),
    "append.ids": (off("append.ids"), "append"),
    "roll.page": (off("roll.page"), "append all"),
    "roll.k": (off("roll.k"), "append"),
    "merge.gc": (off("merge.gc"), "read merge"),
    "drop.v": (off("drop.v"), "merge2 retain"),
    "floor.less": (off("floor.less"), "floor retain"),
    "clean.no_fence": (off("clean.no_fence"), "append clean"),
    "named.seq": (off("named.seq"), "named"),
    "named.both": (off("named.seq", "named.epoch"), "named"),
    "reader.seq": (off("reader.seq"), "pipeline"),
    "reput.same_name": (_same_name, "append clean"),
    "read.no_base_check": (patched(Reader, "_following", _no_base_check), "read merge"),
    "read.skip_missing": (patched(Reader, "_read", _skip_missing), "read merge"),
    "text.gc_before_page": (patched(append, "_found", _fence_first), "append clean"),
    "text.always_look": (patched(append, "_found", _always_look), "retain all"),
    "text.look_by_number": (patched(lookup, "look", _look_by_number), "doubt"),
    "text.missing_is_gone": (patched(lookup, "look", _missing_is_gone), "doubt append"),
    "text.merge_forgets_ids": (_forgets_ids, "doubt"),
    "text.roll_puts_head": (patched(heads, "roll", _roll_puts_head), "append clean retain"),
    "text.reader_without_id": (lambda: patch("tests.log.actors.take_in", _without_id), "pipeline"),
    "text.next_number": (_next_numbers, "read merge"),
    "text.give_up": (_gives_up, "append doubt"),
    "grow.early": (off("grow.early"), "grow-group"),
    "grow.old_partitions": (off("grow.partitions"), "grow-group"),
    "text.append_after_roll": (off("grow.asked"), "grow-group"),
    "text.grow_flag_only": (patched(heads, "grow", growing.no_roll), "grow grow-group"),
    "text.grown_before_page": (growing.before_page, "grow grow-named"),
    "no compare on Conflict": (_no_compare, "append doubt"),
    "a new id after a timeout": (_new_id_after_timeout, "append"),
}
