"""Cleaning: removing bytes that nothing refers to.  No clock decides, a fence does.

CLEAN   g = the head's gen, raised by the run before; gc = g, confirmed: from now on no chunk put under a gen below g
        can be appended.  Read every reference; delete unreferenced chunks with a gen below g.  gen += 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST
from tailrace.log.head import Entry, Page
from tailrace.log.looking import look
from tailrace.log.manifest import expand
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Add, Delete, Equals, Key, Less, Set, Update


class Cleaned(NamedTuple):
    """Chunks that nothing referred to, and their bytes."""

    chunks: int
    bytes: int


def clean(log: Log) -> Steps[Cleaned]:
    """One run of cleaning; gives what it removed."""
    g = (yield from log.head()).gen
    if in_force("clean.no_fence"):
        yield from _fence(log, g)
    kept = yield from references(log)
    objects = yield from _remove_objects(log, g, kept)
    items = yield from _remove_items(log, g, kept)
    yield from _next_gen(log, g)
    return Cleaned(objects.chunks + items.chunks, objects.bytes + items.bytes)


def _fence(log: Log, g: int) -> Steps[None]:
    while (yield from log.head()).gc < g:
        yield from guard.attempt(Update(heads.head_key(log.id), (Set("gc", g),), (Less("gc", g),)))


def _next_gen(log: Log, g: int) -> Steps[None]:
    """Whoever ends a run of this gen raises it; it does not matter who."""
    yield from guard.attempt(Update(heads.head_key(log.id), (Add("gen", 1),), (Equals("gen", g),)))


def references(log: Log) -> Steps[set[str]]:
    """The ids of all chunks that are referred to: the head first, then the pages below it, downwards, all joining."""
    missing = ""
    while True:
        head = yield from log.head()
        try:
            ids = yield from _ids(log, head.own)
            if (hidden := (yield from _pages_below(log, head.page, head.first, ids))) is None:
                return ids
            yield from _shows(log, hidden)
        except ObjectMissing as error:  # its page was dropped meanwhile, or it is lost
            if error.name == missing:
                raise Damaged(
                    f"{missing} is gone, which lists chunks of {log.name!r}: nothing can be cleaned while it is not "
                    "known what is in use; restore it from a backup",
                    where=missing,
                ) from error
            missing = error.name
        yield from calls.pause(0)


def _shows(log: Log, number: int) -> Steps[None]:
    """Wait for a page that does not show yet; `Damaged` if it is lost."""
    try:
        yield from look(log, number)
    except Damaged as error:
        text = f"{error}; nothing of {log.name!r} can be cleaned while it is not known what is in use"
        raise Damaged(text, where=error.where, topic=error.topic, lost=error.lost) from error


def _ids(log: Log, page: Page) -> Steps[set[str]]:
    ids = {e.id for e in page.entries}
    for entry in page.entries:
        if entry.kind & MANIFEST:
            ids |= {e.id for e in (yield from expand(log, entry))}
    return ids


def _pages_below(log: Log, page: int, first: int, ids: set[str]) -> Steps[int | None]:
    """Take in the ids of the pages below this one; gives the number of one that does not join, if any."""
    number = page - 1
    while number >= first:
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, 0, number, descending=True, limit=1)
        if not items or (found := Page.of(items[0])).last != number:
            return number
        ids |= yield from _ids(log, found)
        number = found.first - 1
    return None


def _remove_objects(log: Log, g: int, kept: set[str]) -> Steps[Cleaned]:
    listed = yield from guard.persist(lambda: calls.list_objects(f"topics/{log.id}/"))
    doomed = [o for o in listed if _unused(o.name, g, kept)]
    for start in range(0, len(doomed), 1000):
        names = [o.name for o in doomed[start : start + 1000]]
        yield from guard.persist(lambda names=names: calls.delete_objects(names))  # type: ignore[misc]
    return Cleaned(len(doomed), sum(o.size for o in doomed))


def _unused(name: str, g: int, kept: set[str]) -> bool:
    parts = heads.parts_of(name)
    return parts is not None and parts[1] < g and parts[2] not in kept


def _remove_items(log: Log, g: int, kept: set[str]) -> Steps[Cleaned]:
    removed = size = low = 0
    p = heads.chunk_key(log.id, 0, "0").p
    while True:
        items, more = yield from guard.read_range(p, low, (g << heads.ID_BITS) - 1 if g else 0)
        for item in items:
            if item["id"] not in kept and item["i"] >> heads.ID_BITS < g:
                yield from guard.attempt(Delete(Key(p, item["i"]), (Equals("id", item["id"]),)))
                removed, size = removed + 1, size + len(item["d"])
        if more is None:
            return Cleaned(removed, size)
        low = more + 1


def drop(log: Log, entries: Sequence[Entry]) -> Steps[None]:
    """Remove the bytes of entries whose page is gone; what a manifest lists before the manifest."""
    for manifest in (e for e in entries if e.kind & MANIFEST):
        try:
            yield from drop(log, (yield from expand(log, manifest)))
        except (ObjectMissing, Damaged):
            continue  # what it may still list is referred to by nothing, and left to cleaning
    names = [heads.object_name(log.id, e.gen, e.id) for e in entries if not e.inline]
    if names:
        yield from guard.persist(lambda: calls.delete_objects(names))
    for entry in entries:
        if entry.inline:
            yield from guard.attempt(heads.drop_chunk(log.id, entry))
