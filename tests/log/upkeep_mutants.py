"""Mutants of merging, retention and cleaning: upkeep with one rule taken away, or with its steps in a wrong order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tailrace.coordination import guard
from tailrace.coordination.guard import Written
from tailrace.coordination.rules import without
from tailrace.log.format import head as heads
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep import clean, merge
from tailrace.log.upkeep.clean import Cleaned
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Delete, Less, Set, Update
from tests.log.mutants import Mutant, off, patched


# --- merge
def _delete_first(log: TopicLog, pages: Sequence[Page], entries: Sequence[ChunkEntry], gen: int) -> Steps[bool]:
    """The other pages go in a write of their own, before the first page takes their entries."""
    check, put, *deletes = merge._actions(log, pages, entries, gen)
    if not isinstance((yield from guard.attempt(*deletes)), Written):
        return False
    return isinstance((yield from guard.attempt(check, put)), Written)


def _two_steps(log: TopicLog, pages: Sequence[Page], entries: Sequence[ChunkEntry], gen: int) -> Steps[bool]:
    """The first page takes the entries; the other pages go afterwards, whatever has become of them."""
    check, put, *deletes = merge._actions(log, pages, entries, gen)
    if not isinstance((yield from guard.attempt(check, put)), Written):
        return False
    yield from guard.attempt(*(Delete(action.key) for action in deletes))
    return True


# --- retention
@contextmanager
def _page_first() -> Iterator[None]:
    """Pages go without a floor that says so."""

    def raised(log: TopicLog, floors: Mapping[int, int]) -> Steps[Head]:
        return (yield from log.head())

    with without("retain.below_floor"), patch("tests.log.actors.raise_floor", raised):
        yield


# --- cleaning
def _refs_before_gc(log: TopicLog) -> Steps[Cleaned]:
    """What is referred to is looked up before the fence is there."""
    kept = yield from clean.references(log)
    g = (yield from log.head()).gen
    yield from clean._fence(log, g)
    return (yield from _removed(log, g, kept))


def _removed(log: TopicLog, g: int, kept: set[str]) -> Steps[Cleaned]:
    yield from clean._remove_objects(log, g, kept)
    yield from clean._remove_items(log, g, kept)
    yield from clean._next_gen(log, g)
    return Cleaned(0, 0)


def _gc_unconfirmed(log: TopicLog, g: int) -> Steps[None]:
    """The fence is asked for once, and not looked at."""
    if (yield from log.head()).fence < g:
        yield from guard.attempt(Update(heads.head_key(log.id), (Set("gc", g),), (Less("gc", g),)))


def _no_references(log: TopicLog) -> Steps[set[str]]:
    yield from log.head()
    return set()


def _pages_before_head(log: TopicLog) -> Steps[set[str]]:
    """Pages up to where the head once was, then the head as it now is."""
    ids: set[str] = set()
    top, low = (yield from log.head()).page, 0
    while low < top:
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, low, LAST - 1, limit=1)
        if not items:
            break
        page = Page.of(items[0])
        ids |= yield from clean._ids(log, page)
        low = page.last + 1
    return ids | (yield from clean._ids(log, (yield from log.head()).own))


def _any_gen(log: TopicLog) -> Steps[Cleaned]:
    """Chunks of every gen go, also those that a producer has put and is about to append."""
    g = (yield from log.head()).gen
    yield from clean._fence(log, g)
    kept = yield from clean.references(log)
    yield from clean._remove_objects(log, 1 << 20, kept)
    yield from clean._remove_items(log, 1 << 20, kept)
    yield from clean._next_gen(log, g)
    return Cleaned(0, 0)


def _cleans(new: Any) -> Mutant:
    return lambda: patch("tests.log.actors.clean", new)


UPKEEP_MUTANTS: Mapping[str, tuple[Mutant, str]] = {
    "merge.v": (off("merge.v"), "rewrite"),
    "merge.delete_first": (patched(merge, "replace", _delete_first), "merge2 merge"),
    "text.merge_two_steps": (patched(merge, "replace", _two_steps), "merge2 merge"),
    "text.merge_without_join": (off("merge.join"), "unseen"),
    "retain.page_first": (_page_first, "floor retain"),
    "retain.below_floor": (off("retain.below_floor"), "floor retain"),
    "clean.refs_before_gc": (_cleans(_refs_before_gc), "append clean"),
    "clean.gc_unconfirmed": (patched(clean, "_fence", _gc_unconfirmed), "fence append"),
    "clean.delete_without_refs": (patched(clean, "references", _no_references), "append clean"),
    "clean.any_gen": (_cleans(_any_gen), "append clean"),
    "clean.pages_before_head": (patched(clean, "references", _pages_before_head), "append clean merge"),
    "text.gc_not_monotone": (off("clean.gc_rises"), "fence"),
    "text.refs_without_join": (off("clean.refs_join"), "unseen"),
}
"""A rule taken away, and the scenarios in which that shows; the names are those of the model, tests/model."""
