"""Gathering: chunks that others have stored, and some that are still in hand, appended as one.

Spark's tasks put chunks and die; the driver appends all of them by one write.  Should cleaning have fenced the names
meanwhile, the objects are copied to new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tailrace.coordination import guard
from tailrace.errors import ObjectMissing, TimedOut, Unavailable
from tailrace.log import head as heads
from tailrace.log import manifest
from tailrace.log.append import Log, Placed, place
from tailrace.log.chunk import Chunk
from tailrace.log.head import Entry
from tailrace.log.spreading import Made, is_stale, taken_back
from tailrace.storage import calls
from tailrace.storage.calls import Steps

Part: TypeAlias = Entry | Chunk
"""A chunk that is stored as an object, or one that is not stored yet."""


def gather(
    log: Log, parts: Sequence[Part], *, inline: bool = True, made: Mapping[str, Made] | None = None
) -> Steps[Placed]:
    """Parts of one topic, in this order, ready to be appended.  Without `inline`, and where there are so many that a
    manifest lists them, all become objects.  `made` tells of stored parts, by id, how they were made."""
    how = made or {}
    many = sum(map(_size, parts)) > manifest.LIMIT
    if many or not inline:
        log = replace(log, inline_bytes=0)
    entries: list[Entry] = []
    data: dict[str, bytes] = {}
    counts: list[int] = []
    for part in parts:
        if isinstance(part, Entry):
            entries.append(part)
            counts.append(how.get(part.id, Made()).partitions)
        else:
            placed = yield from place(log, part)
            entries += placed.entries
            data.update(placed.data)
            counts.append(placed.partitions)

    def again() -> Steps[Placed]:
        fresh: list[Part] = []
        kept: dict[str, Made] = {}
        for part in parts:
            fresh.append((yield from _again(log, part, how)) if isinstance(part, Entry) else part)
            if isinstance(part, Entry) and isinstance(fresh[-1], Entry):
                kept[fresh[-1].id] = how.get(part.id, Made())
        return (yield from gather(log, fresh, inline=inline, made=kept))

    shown = [(yield from manifest.put_manifest(log, entries))] if many else entries
    return Placed(log, tuple(shown), again, data, partitions=min(filter(None, counts), default=0))


def _again(log: Log, entry: Entry, how: Mapping[str, Made]) -> Steps[Part]:
    """A stored chunk under a new name; spread anew, if its topic has grown."""
    made = how.get(entry.id, Made())
    if not is_stale(log, made):
        return (yield from _copied(log, entry))
    try:
        return (yield from taken_back(log, entry, made))
    except ObjectMissing:
        raise _cleaned(log, heads.object_name(log.id, entry.gen, entry.id)) from None


def _cleaned(log: Log, name: str) -> Unavailable:
    return Unavailable(
        f"{name}, which this write to {log.name!r} had stored, was cleaned away before it could be committed, since "
        "the write took longer than the time between two cleanings; nothing was written, run it again"
    )


def _size(part: Part) -> int:
    """The bytes of a part's entry, or, if it is not there yet, what they may be."""
    return len(heads.pack(part)) if isinstance(part, Entry) else 64 * (1 + len(part.runs))


def _copied(log: Log, entry: Entry) -> Steps[Entry]:
    """The same chunk under a new name, at the current gen."""
    old = heads.object_name(log.id, entry.gen, entry.id)
    try:
        (data,) = yield from guard.persist(lambda: calls.get_object(old))
    except ObjectMissing:
        raise _cleaned(log, old) from None

    def put() -> Steps[Entry]:
        fresh = Entry(log.new_id(), False, log.newest.gen, entry.kind, entry.runs)
        yield from calls.put_object(heads.object_name(log.id, fresh.gen, fresh.id), [data])
        return fresh

    return (yield from guard.persist(put, (*guard.NOT_DONE, TimedOut)))
