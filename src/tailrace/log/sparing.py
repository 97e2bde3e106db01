"""Sparing: chunks that cannot be read stay as they are, and what is around them is gone through without them.

Restored from a backup they are what they were, so nothing may be decided by what they are not known to hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from tailrace.errors import Damaged, Lost, ObjectMissing
from tailrace.log import head as heads
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST, decode
from tailrace.log.head import Entry
from tailrace.log.manifest import expand
from tailrace.log.packing import Piece, read_pieces
from tailrace.log.quarantine import covering
from tailrace.log.runs import lost_with, placed, read_runs, where_is
from tailrace.log.tiers import Pack
from tailrace.storage.calls import Steps

T = TypeVar("T")


class Spared(NamedTuple):
    """A chunk that was left as it is: its place, and the offsets that cannot be read."""

    where: str
    lost: tuple[Lost, ...]


def around(log: Log, pack: Pack, error: Damaged | ObjectMissing) -> list[Pack]:
    """What is before a chunk that cannot be read, it alone, and what is behind it: damage stays as it is, to be told
    to readers, and passed by those who may."""
    where = error.where if isinstance(error, Damaged) else error.name
    at = next((n for n, entry in enumerate(pack) if where_is(log.id, entry) == where), None)
    if at is None:
        return [(entry,) for entry in pack]
    return [some for some in (pack[:at], pack[at : at + 1], pack[at + 1 :]) if some]


def read_around(
    log: Log,
    chunks: Sequence[Entry],
    base: Mapping[int, int],
    use: Callable[[Mapping[int, Sequence[Piece]]], T],
    unread: set[str],
    passed: Callable[[Entry, Mapping[int, int]], None],
) -> Steps[list[tuple[Pack, T | None]]]:
    """Neighbouring chunks, which begin at these offsets, and what `use` makes of their pieces, in order; None with
    each that cannot be read.  Of such a one `passed` is told before what is behind it is used, and its id goes into
    `unread`: what is in there already is not looked at."""
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


def _apart(chunks: Sequence[Entry], unread: set[str]) -> Iterator[Pack]:
    for passed, some in groupby(chunks, lambda entry: entry.id in unread):
        if passed:
            yield from ((entry,) for entry in some)
        else:
            yield tuple(some)


def spared(log: Log, entry: Entry, at: Mapping[int, int]) -> Steps[Spared]:
    """A chunk that is left as it is, and begins at these offsets."""
    lost: list[Lost] = []
    for run in entry.runs:
        try:
            if entry.kind & MANIFEST:
                yield from expand(log, entry)
            elif run.length:
                (data,) = yield from read_runs(log, entry, [run])
                decode(entry.kind, run, data, where_is(log.id, entry))
        except (Damaged, ObjectMissing):
            lost += lost_with([run], at)
    return Spared(where_is(log.id, entry), tuple(lost))


def undecided(log: Log, some: Sequence[Spared]) -> Steps[str | None]:
    """What to tell of damage that nobody has decided to do without; None if there is none."""
    for one in some:
        if one.lost and (yield from covering(log, one.lost)) is None:
            return (
                f"{one.where} cannot be read, and is not compacted: {placed(log.name, one.lost)}; restore it from a "
                f"backup, or let readers pass it with `tailrace scrub {log.name} --quarantine`"
            )
    return None
