"""Cleaning: removes bytes that nothing refers to.  A fence, not a clock, decides which.

CLEAN   g = the head's gen, raised by the run before; gc = g, confirmed: from now on no chunk put under a gen below g
        can be appended.  Read every reference; delete unreferenced chunks with a gen below g.  gen += 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force, rules
from tailrace.errors import Damaged, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.format.head import ChunkEntry, Page
from tailrace.log.format.manifest import expand
from tailrace.log.read.pages import look
from tailrace.log.topic_log import TopicLog
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Add, Delete, Equals, Key, Less, Set, Update


class Cleaned(NamedTuple):
    """What cleaning removed: chunks that nothing referred to, and their bytes."""

    chunks: int
    bytes: int


def clean(log: TopicLog) -> Steps[Cleaned]:
    """One run of cleaning; returns what it removed."""
    g = (yield from log.head()).gen
    if in_force("clean.no_fence"):
        yield from _fence(log, g)
    kept = yield from references(log)
    objects = yield from _remove_objects(log, g, kept)
    items = yield from _remove_items(log, g, kept)
    yield from _next_gen(log, g)
    return Cleaned(objects.chunks + items.chunks, objects.bytes + items.bytes)


def _fence(log: TopicLog, g: int) -> Steps[None]:
    while (yield from log.head()).fence < g:
        when = rules({"clean.gc_rises": Less("gc", g)})
        yield from guard.attempt(Update(heads.head_key(log.id), (Set("gc", g),), when))


def _next_gen(log: TopicLog, g: int) -> Steps[None]:
    """Raise the gen; any cleaner that completes a run of this gen may do so."""
    yield from guard.attempt(Update(heads.head_key(log.id), (Add("gen", 1),), (Equals("gen", g),)))


def references(log: TopicLog) -> Steps[set[str]]:
    """The ids of the chunks that cleaning must keep, since a head or a page refers to them: those on the head first,
    then those on the pages below it, downwards; each page must join the one above."""
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


def _shows(log: TopicLog, number: int) -> Steps[None]:
    """Wait for a page to become visible; `Damaged` if it is lost."""
    try:
        yield from look(log, number)
    except Damaged as error:
        text = f"{error}; nothing of {log.name!r} can be cleaned while it is not known what is in use"
        raise Damaged(text, where=error.where, topic=error.topic, lost=error.lost) from error


def _ids(log: TopicLog, page: Page) -> Steps[set[str]]:
    ids = {e.id for e in page.entries}
    for entry in page.entries:
        if entry.kind & MANIFEST:
            ids |= {e.id for e in (yield from expand(log.id, entry))}
    return ids


def _pages_below(log: TopicLog, page: int, first: int, ids: set[str]) -> Steps[int | None]:
    """Collect the ids on the pages below this one; returns the number of a page that does not join, if there is one."""
    number = page - 1
    while number >= first:
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, 0, number, descending=True, limit=1)
        if not items or ((found := Page.of(items[0])).last != number and in_force("clean.refs_join")):
            return number
        ids |= yield from _ids(log, found)
        number = found.first - 1
    return None


def _remove_objects(log: TopicLog, g: int, kept: set[str]) -> Steps[Cleaned]:
    listed = yield from guard.persist(lambda: calls.list_objects(f"topics/{log.id}/"))
    doomed = [o for o in listed if _unused(o.name, g, kept)]
    for start in range(0, len(doomed), 1000):
        names = [o.name for o in doomed[start : start + 1000]]
        yield from guard.persist(lambda names=names: calls.delete_objects(names))  # type: ignore[misc]
    return Cleaned(len(doomed), sum(o.size for o in doomed))


def _unused(name: str, g: int, kept: set[str]) -> bool:
    parts = heads.parts_of(name)
    return parts is not None and parts[1] < g and parts[2] not in kept


def _remove_items(log: TopicLog, g: int, kept: set[str]) -> Steps[Cleaned]:
    removed = size = low = 0
    p = heads.chunk_key(log.id, 0, "0").p
    while True:
        items, more = yield from guard.read_range(p, low, (g << heads.ID_BITS) - 1 if g else 0)
        for item in items:
            if item["id"] not in kept and item["i"] >> heads.ID_BITS < g:
                yield from guard.attempt(Delete(Key(p, item["i"]), (Equals("id", item["id"]),)))
                removed, size = removed + 1, size + len(heads.chunk_data(item))
        if more is None:
            return Cleaned(removed, size)
        low = more + 1


def drop(log: TopicLog, entries: Sequence[ChunkEntry]) -> Steps[None]:
    """Remove the bytes of entries whose page is gone; the chunks of a manifest before the manifest."""
    for manifest in (e for e in entries if e.kind & MANIFEST):
        try:
            yield from drop(log, (yield from expand(log.id, manifest)))
        except (ObjectMissing, Damaged):
            continue  # nothing refers to the chunks it may still list; cleaning removes them
    names = [heads.object_name(log.id, e.gen, e.id) for e in entries if not e.inline]
    if names:
        yield from guard.persist(lambda: calls.delete_objects(names))
    for entry in entries:
        if entry.inline:
            yield from guard.attempt(heads.drop_chunk(log.id, entry))
