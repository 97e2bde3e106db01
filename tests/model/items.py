"""Items: what the model's table and objects hold.

The model is small on purpose: two partitions, two entries to a page, records that are (who sent it, its number).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Offsets: TypeAlias = tuple[int, ...]
"""One number for each partition."""
Runs: TypeAlias = tuple[tuple[int, int], ...]
"""(partition, count) of the records in a chunk."""
Where: TypeAlias = tuple[int, str, int]
"""An object's name: gen, who put it, a number."""
Record: TypeAlias = tuple[str, int]
Records: TypeAlias = tuple[tuple[int, tuple[Record, ...]], ...]
"""A chunk's bytes: the records of each partition."""
Key: TypeAlias = tuple[str, int]

PARTITIONS = 2
FULL = 2
LAST = 2**63 - 1

HEAD: Key = ("log", LAST)
NAMED: Key = ("named", 0)
READER: Key = ("reader", 0)
SHARD: Key = ("shard", 0)
EFFECT: Key = ("effect", 0)

GONE, TIMEOUT = "GONE", "TIMEOUT"
FORGOTTEN = ""
"""The id, in a merged entry, of chunks behind the fence."""


def drain(partition: int) -> Key:
    """How far a group over both partitions has committed one of them."""
    return "drain", partition


class Entry(NamedTuple):
    """A chunk's reference.  A merged one keeps (id, runs) of each chunk it was made of."""

    id: str
    where: Where
    gen: int
    runs: Runs
    made_of: tuple[tuple[str, Runs], ...] = ()


class Head(NamedTuple):
    """A topic's Tip.  gc <= gen; page, first, gen, gc and floor only rise."""

    page: int = 0
    k: int = 0
    b: int = 0
    nx: Offsets = (0,) * PARTITIONS
    floor: Offsets = (0,) * PARTITIONS
    gen: int = 0
    gc: int = 0
    ids: tuple[str, ...] = ()
    e: tuple[Entry, ...] = ()
    first: int = 0
    cut: tuple[int, Offsets] | None = None
    """Where the topic was grown: its first page since, and the offsets then."""

    @property
    def base(self) -> Offsets:
        """The offsets at which its own entries begin."""
        base = self.nx
        for entry in self.e:
            base = plus(base, entry.runs, -1)
        return base

    def as_page(self, v: int) -> Page:
        """Its own entries, as the page they become."""
        return Page(self.page, self.page, self.base, self.e, v)


class Page(NamedTuple):
    """Entries that have left the head, for the page numbers first to last; `v` rises with each merge."""

    first: int
    last: int
    base: Offsets
    e: tuple[Entry, ...]
    v: int

    @property
    def end(self) -> Offsets:
        """The offsets after its last entry."""
        end = self.base
        for entry in self.e:
            end = plus(end, entry.runs)
        return end

    @property
    def forgot(self) -> bool:
        """Whether a merge has forgotten ids of its chunks."""
        return any(id == FORGOTTEN for entry in self.e for id, _ in entry.made_of)


class Named(NamedTuple):
    """$Producer: a named producer's epoch and its last batch."""

    epoch: int = 0
    seq: int = 0
    id: str | None = None
    page: int = 0


class Pipe(NamedTuple):
    """$Reader: how far a pipeline has read its source."""

    seq: int = 0
    position: int = 0
    id: str | None = None


class Shard(NamedTuple):
    """$Group: who reads a partition for a group, and how far it has come."""

    owner: str | None = None
    epoch: int = 0
    position: int = 0


class Answer(NamedTuple):
    """To a write: whether it was done, and the items after it, or as they are stored."""

    ok: bool
    items: tuple[Any, ...]


class Violation(Exception):
    """Something that must always hold does not."""


def must(true: object, why: str) -> None:
    """Stop the schedule unless this holds."""
    if not true:
        raise Violation(why)


def moved(records: Records) -> Records:
    """The same records after the topic has grown: every key belongs to another partition."""
    return tuple(sorted(((q + 1) % PARTITIONS, of_q) for q, of_q in records))


def plus(offsets: Offsets, runs: Runs, sign: int = 1) -> Offsets:
    """Offsets moved by a chunk's counts."""
    moved = list(offsets)
    for partition, count in runs:
        moved[partition] += sign * count
    return tuple(moved)
