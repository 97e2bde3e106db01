"""Unreadable chunks: they stay as they are, and compaction works around them.

A backup may restore them, so nothing may be decided as if they were empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from tailrace.errors import Damaged, Lost, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, batches_of
from tailrace.log.format.head import ChunkEntry
from tailrace.log.format.manifest import expand
from tailrace.log.format.run import lost_with, placed, read_runs, where_is
from tailrace.log.integrity.quarantine import covering
from tailrace.log.topic_log import TopicLog
from tailrace.log.upkeep.merge_plan import Pack
from tailrace.log.upkeep.repack import RunToPack, read_pieces
from tailrace.storage.calls import Steps

T = TypeVar("T")


class SparedChunk(NamedTuple):
    """A chunk that was left as it is: where it is stored, and the offsets that cannot be read."""

    where: str
    lost: tuple[Lost, ...]


def around(log: TopicLog, pack: Pack, error: Damaged | ObjectMissing) -> list[Pack]:
    """The entries before an unreadable chunk, the chunk alone, and the entries after it.  Damage stays in the log, so
    that readers get the error, or pass over it if it is quarantined."""
    where = error.where if isinstance(error, Damaged) else error.name
    at = next((n for n, entry in enumerate(pack) if where_is(log.id, entry) == where), None)
    if at is None:
        return [(entry,) for entry in pack]
    return [some for some in (pack[:at], pack[at : at + 1], pack[at + 1 :]) if some]


def read_around(
    log: TopicLog,
    chunks: Sequence[ChunkEntry],
    base: Mapping[int, int],
    use: Callable[[Mapping[int, Sequence[RunToPack]]], T],
    unread: set[str],
    passed: Callable[[ChunkEntry, Mapping[int, int]], None],
) -> Steps[list[tuple[Pack, T | None]]]:
    """Neighbouring chunks, which begin at these offsets, each with the result of `use` for its pieces, in order; None
    for each that cannot be read.

    For such a chunk `passed` is called before the pieces behind it are used, and its id is added to `unread`; chunks
    whose ids are there already are not read."""
    out: list[tuple[Pack, T | None]] = []
    at, left = base, deque(_apart(chunks, unread))
    while left:
        some = left.popleft()
        made: T | None = None
        if some[0].id not in unread:
            try:
                made = use((yield from read_pieces(log, some, at)))
            except (Damaged, ObjectMissing) as error:
                if len(some) > 1:
                    left.extendleft(reversed(around(log, some, error)))
                    continue
                unread.add(some[0].id)
        if made is None:
            passed(some[0], at)
        out.append((some, made))
        at = heads.plus(at, heads.counts_of(some))
    return out


def _apart(chunks: Sequence[ChunkEntry], unread: set[str]) -> Iterator[Pack]:
    for passed, some in groupby(chunks, lambda entry: entry.id in unread):
        if passed:
            yield from ((entry,) for entry in some)
        else:
            yield tuple(some)


def spared(log: TopicLog, entry: ChunkEntry, at: Mapping[int, int]) -> Steps[SparedChunk]:
    """Describe a chunk that is left as it is, and begins at these offsets."""
    lost: list[Lost] = []
    for run in entry.runs:
        try:
            if entry.kind & MANIFEST:
                yield from expand(log.id, entry)
            elif run.length:
                (data,) = yield from read_runs(log.id, entry, [run])
                for _ in batches_of(entry.kind, run, data, where_is(log.id, entry)):
                    pass
        except (Damaged, ObjectMissing):
            lost += lost_with([run], at)
    return SparedChunk(where_is(log.id, entry), tuple(lost))


def undecided(log: TopicLog, some: Sequence[SparedChunk]) -> Steps[str | None]:
    """The error text about chunks that compaction could not read and that no operator has quarantined; None if there
    are none."""
    for one in some:
        if one.lost and (yield from covering(log, one.lost)) is None:
            return (
                f"{one.where} cannot be read, and is not compacted: {placed(log.name, one.lost)}; restore it from a "
                f"backup, or let readers pass it with `tailrace scrub {log.name} --quarantine`"
            )
    return None
