"""The head: a topic's Tip, and the pages calved off it.  Pure: what is stored, and which guarded write does what.

    $Log-<topic id>, 2^63-1   page, first, k, b, t, nx{partition: next}, floor{}, gen, gc, grown[], ids(set), e[entries]
    $Log-<topic id>, first    PAGE: first, last, base{}, e[entries], t, v
    $Chunk-<topic id>, gen·id a small chunk: id, d(ata)

Producers write the head (APPEND), and so do the writer that finds it full (ROLL) or adds partitions (GROW), and upkeep.
The conditions of each write are named as in the protocol's model, tests/model; `t` is the latest timestamp of all
closed pages. See docs/formats/head.md.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from tailrace.coordination.rules import rules
from tailrace.log.format.partition_run import PartitionRun
from tailrace.storage.randomness import random_bytes
from tailrace.storage.tables import (
    LAST,
    Absent,
    Action,
    Add,
    Append,
    AtMost,
    Change,
    Delete,
    Equals,
    Include,
    Item,
    Key,
    Less,
    NotIn,
    Put,
    Remove,
    Set,
    Update,
)

MAX_ENTRY_BYTES = 4096
"""A writer rolls a head once its entries have this many bytes."""

_OBJECT = re.compile(r"topics/([^/]+)/([0-9]+)/([0-9a-f]+)")

ID_BITS = 43
"""Bits of a chunk's id in the range key of its item; the bits above them are its gen."""


class Offsets(dict[int, int]):
    """Offsets by partition; 0 for a partition that did not exist yet."""

    def __missing__(self, partition: int) -> int:
        return 0


class Growth(NamedTuple):
    """When a topic got more partitions: the first page after that, and the next offsets of the partitions that existed
    before."""

    page: int
    at: Offsets


class ChunkEntry(msgspec.Struct, frozen=True, array_like=True):
    """A reference to a chunk: [id, inline, gen, kind, runs, made_of]; a run is [partition, count, position, length,
    crc32c, latest timestamp, milliseconds from the earliest to it].  `made_of` has the ids and counts of the chunks
    that a merged one replaced; the id "" stands for chunks whose ids are forgotten."""

    id: str
    inline: bool
    gen: int
    kind: int
    runs: tuple[PartitionRun, ...]
    made_of: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    @property
    def counts(self) -> dict[int, int]:
        """How many records of each partition the chunk holds, by its entry in a head or page."""
        return {run.partition: run.count for run in self.runs}

    @property
    def latest(self) -> int:
        """The latest timestamp in the chunk, by its entry in a head or page."""
        return max((run.latest for run in self.runs), default=0)

    @property
    def size(self) -> int:
        """The bytes of the chunk's runs, by its entry in a head or page."""
        return sum(run.length for run in self.runs)


pack = msgspec.msgpack.Encoder().encode
"""Packs an entry as it is stored."""

unpack = msgspec.msgpack.Decoder(ChunkEntry).decode
"""Unpacks a stored entry."""


def new_id() -> str:
    """Make an id for a new chunk: random, except for the bits in its item's key.  These bits grow with time, in steps
    of 36 us, so that items made one after the other are neighbours in the table.  A process never makes the same id
    twice: one write can hold several chunks."""
    with _ticking:
        _tick[0] = max(time.time_ns() // 36_000, _tick[0] + 1)
        low = _tick[0] & (1 << ID_BITS) - 1
    return f"{int.from_bytes(random_bytes()) >> ID_BITS << ID_BITS | low:024x}"


_ticking, _tick = threading.Lock(), [0]


def head_key(topic_id: str) -> Key:
    """The key of a topic's head."""
    return Key(f"$Log-{topic_id}", LAST)


def page_key(topic_id: str, first: int) -> Key:
    """The key of a topic's page that begins with this number."""
    return Key(f"$Log-{topic_id}", first)


def chunk_key(topic_id: str, gen: int, id: str) -> Key:
    """The key of the item that a small chunk is stored in."""
    return Key(f"$Chunk-{topic_id}", gen << ID_BITS | int(id, 16) & ((1 << ID_BITS) - 1))


def object_name(topic_id: str, gen: int, id: str) -> str:
    """The name of a chunk's object."""
    return f"topics/{topic_id}/{gen}/{id}"


def parts_of(name: str) -> tuple[str, int, str] | None:
    """The topic's id, the gen and the id in the name of a chunk's object; None if it is not the name of a chunk."""
    found = _OBJECT.fullmatch(name)
    return (found[1], int(found[2]), found[3]) if found else None


def plus(base: Mapping[int, int], counts: Mapping[int, int], sign: int = 1) -> Offsets:
    """Offsets by partition, once these many more records of each are appended; with sign -1 before they were."""
    out = Offsets(base)
    for partition, count in counts.items():
        out[partition] = out.get(partition, 0) + sign * count
    return out


def joins(end: Mapping[int, int], base: Mapping[int, int]) -> bool:
    """Whether a page of the topic begins at the offsets where another one ends; a partition that did not exist yet
    counts as 0."""
    return all(end.get(q, 0) == base.get(q, 0) for q in end.keys() | base.keys())


def counts_of(entries: Sequence[ChunkEntry]) -> dict[int, int]:
    """How many records of each partition some entries of a head or page have together."""
    out = entries[0].counts
    for entry in entries[1:]:
        out = plus(out, entry.counts)
    return out


def by_number(stored: Mapping[str, int]) -> Offsets:
    """Offsets by partition as a head or page stores them, decoded: the partitions become numbers."""
    return Offsets(zip(map(int, stored), stored.values(), strict=True))


def by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets by partition in the form in which a head or page stores them."""
    return {str(q): n for q, n in offsets.items()}


class Page:
    """A run of entries, and the offsets at which they begin.  It stands for all page numbers from `first` to `last`.
    `revision` (stored as `v`) rises with every change; `latest_so_far` (`t`) is the latest timestamp up to the page's
    end."""

    def __init__(
        self,
        first: int,
        last: int,
        base: Mapping[int, int],
        packed: Sequence[bytes],
        revision: int,
        latest_so_far: int,
    ) -> None:
        self.first, self.last, self.base, self.packed = first, last, base, packed
        self.revision, self.latest_so_far = revision, latest_so_far

    @classmethod
    def of(cls, item: Item) -> Page:
        """Decode a stored page."""
        return cls(item["first"], item["last"], by_number(item["base"]), item["e"], item["v"], item["t"])

    @cached_property
    def entries(self) -> tuple[ChunkEntry, ...]:
        """The page's entries, decoded once."""
        return tuple(unpack(e) for e in self.packed)

    @cached_property
    def end(self) -> dict[int, int]:
        """The offsets after the page's last records."""
        end = Offsets(self.base)
        for entry in self.entries:
            end = plus(end, entry.counts)
        return end

    def offsets_of(self, id: str) -> dict[int, int] | None:
        """The offsets at which a chunk on this page begins, merged or not; None if the page has no entry for it."""
        at = Offsets(self.base)
        for entry in self.entries:
            made_of: Iterable[tuple[str, Mapping[int, int]]]
            made_of = [(i, dict(counts)) for i, counts in entry.made_of] or [(entry.id, entry.counts)]
            if entry.id == id:
                return at
            for chunk_id, counts in made_of:
                if chunk_id == id:
                    return at
                at = plus(at, counts)
        return None

    @property
    def latest(self) -> int:
        """The latest timestamp in the entries of the page."""
        return max((entry.latest for entry in self.entries), default=0)

    @property
    def forgot(self) -> bool:
        """Whether a merge has dropped the ids of some chunks that were on this page."""
        return any(id == "" for entry in self.entries for id, _ in entry.made_of)


class Head:
    """A topic's head, as it was when it was read."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.page: int = item["page"]
        self.first: int = item["first"]
        self.appends: int = item["k"]
        """Appends since the last roll."""
        self.entry_bytes: int = item["b"]
        """Bytes of entries since the last roll."""
        self.closed_latest: int = item["t"]
        """The latest timestamp in all closed pages."""
        self.gen: int = item["gen"]
        """The gen that new chunks have in their names."""
        self.fence: int = item["gc"]
        """The fence: chunks of an older gen can no longer be committed."""
        self.ids: frozenset[str] = item.get("ids", frozenset())

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.item["nx"])

    @cached_property
    def grown(self) -> tuple[Growth, ...]:
        """Every growth of the topic, oldest first."""
        return tuple(Growth(one["page"], by_number(one["at"])) for one in self.item.get("grown", ()))

    def partitions_at(self, page: int) -> int:
        """How many partitions the topic had while this page was open."""
        return next((len(one.at) for one in self.grown if page < one.page), self.partitions)

    @cached_property
    def next(self) -> dict[int, int]:
        """The next offset of each partition."""
        return by_number(self.item["nx"])

    @cached_property
    def floor(self) -> dict[int, int]:
        """The lowest offset that is kept, of each partition."""
        return by_number(self.item["floor"])

    @cached_property
    def own(self) -> Page:
        """The newest entries, as a page that is still open."""
        page = Page(self.page, self.page, {}, self.item["e"], 0, self.closed_latest)
        base = self.next
        for entry in page.entries:
            base = plus(base, entry.counts, -1)
        page.base = base
        return page


def new_head(topic_id: str, partitions: int) -> Put:
    """The first head of a topic."""
    zero = {str(q): 0 for q in range(partitions)}
    item: dict[str, Any] = {
        "page": 0, "first": 0, "k": 0, "b": 0, "t": 0, "gen": 0, "gc": 0, "grown": [], "e": [],
        "nx": zero, "floor": dict(zero),
    }  # fmt: skip
    return Put(head_key(topic_id), item, (Absent(),))


def append(
    topic_id: str, page: int, entries: Sequence[ChunkEntry], expected: Mapping[int, int] | None = None
) -> Update:
    """APPEND: the write that adds entries to a head, and their counts to the next offsets; the table does the
    adding."""
    packed, counts = [pack(entry) for entry in entries], counts_of(entries)
    when = rules(
        {
            "append.page": Equals("page", page),
            "append.gc": AtMost("gc", min(entry.gen for entry in entries)),
            "append.b": Less("b", MAX_ENTRY_BYTES),
            "append.ids": NotIn("ids", entries[0].id),
        }
    )
    when += tuple(Equals(("nx", str(q)), n) for q, n in (expected or {}).items())
    changes: tuple[Change, ...] = (
        Append("e", packed),
        *(Add(("nx", str(q)), n) for q, n in counts.items()),
        Add("k", 1),
        Add("b", sum(map(len, packed))),
        Include("ids", frozenset([entries[0].id])),
    )
    return Update(head_key(topic_id), changes, when)


def roll(topic_id: str, head: Head) -> tuple[Action, ...]:
    """ROLL: the head's entries become a page, and the head goes on without entries."""
    t = max([head.closed_latest, *(entry.latest for entry in head.own.entries)])
    page = {
        "first": head.page, "last": head.page, "base": by_text(head.own.base), "e": head.item["e"], "t": t, "v": 1,
    }  # fmt: skip
    changes: tuple[Change, ...] = (
        Set("page", head.page + 1),
        Set("k", 0),
        Set("b", 0),
        Set("t", t),
        Set("e", []),
        Remove("ids"),
    )
    when = rules({"roll.page": Equals("page", head.page), "roll.k": Equals("k", head.appends)})
    return (
        Put(page_key(topic_id, head.page), page, rules({"roll.absent": Absent()})),
        Update(head_key(topic_id), changes, when),
    )


def grow(topic_id: str, head: Head, partitions: int) -> tuple[Action, ...]:
    """GROW: a roll that also adds partitions and notes the next offsets of those before.  It rolls even an empty head:
    appends under way that were made for fewer partitions can then no longer land."""
    page, update = roll(topic_id, head)
    assert isinstance(update, Update)
    new = [str(q) for q in range(head.partitions, partitions)]
    growth = {"page": head.page + 1, "at": head.item["nx"]}
    changes = (
        Set("grown", [*head.item.get("grown", ()), growth]),
        Set("nx", {**head.item["nx"], **dict.fromkeys(new, 0)}),
        *(Set(("floor", q), 0) for q in new),
    )
    return page, Update(update.key, (*update.changes, *changes), update.when)


def chunk_item(topic_id: str, entry: ChunkEntry, data: bytes) -> Put:
    """The item in which a small chunk is stored."""
    return Put(chunk_key(topic_id, entry.gen, entry.id), {"id": entry.id, "d": data}, (Absent(),))


def chunk_data(item: Item) -> bytes:
    """The bytes of a small chunk, from its item."""
    data: bytes = item["d"]
    return data


def drop_chunk(topic_id: str, entry: ChunkEntry) -> Delete:
    """The removal of a small chunk's item, unless another chunk has taken its key."""
    return Delete(chunk_key(topic_id, entry.gen, entry.id), (Equals("id", entry.id),))
