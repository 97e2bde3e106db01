"""The ghost of a topic: what its log has been, told only by what is stored, and what must always hold of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, decode
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import listed
from tailrace.log.topic_log import TopicLog
from tailrace.storage.tables import LAST, Item, Key
from tailrace.testing import Simulation, Violation

PARTITIONS = 2


def must(true: bool, what: str, *details: object) -> None:
    if not true:
        raise Violation(what, *details)


class Met(NamedTuple):
    """A page that was looked at, and the bytes that it needs, as they are stored."""

    item: Item
    page: Page
    needs: list[tuple[Key | str, object]]
    there: dict[int, dict[int, bytes]]
    """Records by partition and offset, where they need not all be there."""

    def same(self, sim: Simulation, item: Item) -> bool:
        """Whether nothing of it has changed."""
        items, objects = sim.table.items, sim.objects.items
        return item is self.item and all(
            (items.get(name) if isinstance(name, Key) else objects.get(name)) is stored for name, stored in self.needs
        )


class Ghost:
    """Follows the stored head and pages of one topic after every step, and remembers each record ever seen."""

    most = 2
    """How many entries a head may have."""

    def __init__(self, topic_id: str) -> None:
        self.id, self.key = topic_id, heads.head_key(topic_id)
        self.log: defaultdict[int, list[bytes]] = defaultdict(list)
        self.where: dict[bytes, int] = {}
        self.acked: dict[bytes, int | None] = {}
        self._known: dict[str, dict[int, list[bytes]]] = {}
        self._pages: dict[int, Met] = {}
        self._needed: list[tuple[Key | str, object]] = []
        self._there: dict[int, dict[int, bytes]] = {}
        self._floor: object = None
        self._seen: tuple[object, ...] = (None,)
        self._risen = (0,) * (4 + PARTITIONS)

    # -- what is stored
    def head(self, sim: Simulation) -> Head:
        return Head(sim.table.items[self.key])

    def pages(self, sim: Simulation) -> list[Page]:
        return [Page.of(item) for item in self._items(sim)]

    def _items(self, sim: Simulation) -> list[Item]:
        numbers = sorted(k.i for k in sim.table.items if k.p == self.key.p and k.i < LAST)
        return [sim.table.items[Key(self.key.p, n)] for n in numbers]

    def values(self, sim: Simulation, entry: ChunkEntry) -> dict[int, list[bytes]]:
        """The records of a chunk, from its bytes, which must be there."""
        if entry.inline:
            item = sim.table.items.get(key := heads.chunk_key(self.id, entry.gen, entry.id))
            must(item is not None and item["id"] == entry.id, "committed bytes deleted")
            data = memoryview(item["d"])
            self._needed.append((key, item))
        else:
            stored = sim.objects.items.get(name := heads.object_name(self.id, entry.gen, entry.id))
            must(stored is not None, "committed bytes deleted")
            data = memoryview(stored)
            self._needed.append((name, stored))
        if entry.kind & MANIFEST:
            return self._listed(sim, listed(entry, data, "a manifest"))
        if entry.id not in self._known:
            self._known[entry.id] = dict(self._decoded(entry, data))
        return self._known[entry.id]

    def _listed(self, sim: Simulation, entries: Iterable[ChunkEntry]) -> dict[int, list[bytes]]:
        out: dict[int, list[bytes]] = {}
        for entry in entries:
            for q, values in self.values(sim, entry).items():
                out.setdefault(q, []).extend(values)
        return out

    def _decoded(self, entry: ChunkEntry, data: memoryview) -> Iterator[tuple[int, list[bytes]]]:
        for run in entry.runs:
            batches = decode(entry.kind, run, data[run.position : run.position + run.length], "a chunk")
            yield run.partition, pa.chunked_array([b.column(3) for b in batches]).to_pylist()

    # -- what must hold after every step
    def check(self, sim: Simulation) -> None:
        item, items, objects = sim.table.items[self.key], len(sim.table.items), len(sim.objects.items)
        if item is not self._seen[0] or (items, objects) != self._seen[1:]:
            self._seen = item, items, objects
            self._check(sim, Head(item))

    def _check(self, sim: Simulation, head: Head) -> None:
        must(head.fence <= head.gen, "gc above gen: every producer fenced for ever")
        must(len(head.own.packed) <= self.most, "head grows without bound")
        self._rises(head)
        position: dict[int, int] | None = None
        for page in [*self._closed(sim, head), head.own]:
            if position is None:
                removed = any(base > head.floor[q] for q, base in page.base.items())
                must(not removed, "records above the floor removed", page.base, head.floor)
            else:
                must(heads.joins(position, page.base), "pages do not join", position, page.base)
            position = page.end
        self._meet_all(sim, head, head.own)
        must(heads.joins(position or {}, head.next), "next offsets do not follow from the entries")
        for q in range(head.partitions):
            must(len(self.log[q]) == head.next[q], "offsets not dense", q, len(self.log[q]), head.next[q])

    def _closed(self, sim: Simulation, head: Head) -> Iterator[Page]:
        """The closed pages, each looked at unless nothing of it has changed since."""
        before = self._pages if head.floor == self._floor else {}
        self._pages, self._floor = {}, head.floor
        for item in self._items(sim):
            met = before.get(item["first"])
            if met is None or not met.same(sim, item):
                page = Page.of(item)
                self._meet_all(sim, head, page)
                met = Met(item, page, self._needed, self._there)
            self._pages[item["first"]] = met
            yield met.page

    def _meet_all(self, sim: Simulation, head: Head, page: Page) -> None:
        position, self._needed, self._there = heads.plus(page.base, {}), [], {}
        for entry in page.entries:
            self._meet(sim, head, entry, position)
            position = heads.plus(position, entry.counts)

    def _rises(self, head: Head) -> None:
        now = (head.page, head.first, head.gen, head.fence, *(head.floor[q] for q in range(PARTITIONS)))
        must(all(a <= b for a, b in zip(self._risen, now, strict=True)), "what only rises went back", self._risen, now)
        self._risen = now

    def _meet(self, sim: Simulation, head: Head, entry: ChunkEntry, position: dict[int, int]) -> None:
        for q, count in entry.counts.items():
            at = position[q]
            if at + count <= head.floor[q]:
                continue
            found = self.values(sim, entry)[q]
            known = self.log[q][at : at + count]
            must(known == found[: len(known)], "bytes are not the records of these offsets", q, at)
            for record in found[len(known) :]:
                must(record not in self.where, "a record twice", record)
                name, _, number = record.rpartition(b".")
                earlier = [int(r.rpartition(b".")[2]) for r in self.log[q] if r.rpartition(b".")[0] == name]
                must(all(n < int(number) for n in earlier), "order of a producer broken", record)
                self.log[q].append(record)
                self.where[record] = q

    # -- what actors tell
    def ack(self, sim: Simulation, q: int, record: bytes, offset: int | None) -> None:
        """An acknowledged record is in the log, at the offset that was answered."""
        self.check(sim)
        must(record in self.where, "acknowledged, not in the log", record)
        if offset is not None:
            must(self.log[q][offset] == record, "a wrong offset answered", record, offset)
        self.acked[record] = offset


def ghost_of(sim: Simulation) -> Ghost:
    ghost: Ghost = sim.ghosts["topic"]
    return ghost


def log_of(sim: Simulation, rng: object = None) -> TopicLog:
    """A view of the topic as one process has it; ids come from the life's own randomness."""
    ghost = ghost_of(sim)
    new_id = (lambda: f"{rng.getrandbits(96):024x}") if rng is not None else None  # type: ignore[attr-defined]
    log = TopicLog("t", ghost.id, sim.table.inline_bytes, sim.table.joins_inline)
    if new_id is not None:
        log.new_id = new_id
    return log
