"""Actors of the log's scenarios: real protocol steps, and what each tells the ghost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from tailrace.coordination import guard
from tailrace.errors import ObjectMissing, OutcomeUnknown, TimedOut
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import Chunk
from tailrace.log.format.head import Page
from tailrace.log.read.reader import Reader
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge, put_packed, replace
from tailrace.log.upkeep.repack import packed, read_pieces
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.named_producer import send, start
from tailrace.log.write.placement import place
from tailrace.log.write.source_append import SourceGuard, open_reader, reader_key, take_in
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST
from tailrace.testing import Life, Simulation
from tests.log.ghost import PARTITIONS, ghost_of, log_of, must

Factory = Callable[[Life], Steps[None]]


@lru_cache(maxsize=4096)
def chunk(records: tuple[tuple[int, bytes], ...]) -> Chunk:
    """A chunk of these (partition, value)s."""
    buffer = Buffer(PARTITIONS, 1000)
    for q, value in records:
        buffer.add(None, value, 1000, partition=q)
    return buffer.encode("none")


def producer(sim: Simulation, name: str, batches: Sequence[Sequence[int]]) -> Factory:
    """Appends one record to each partition of each batch, in order; each life has a name of its own."""

    def run(life: Life) -> Steps[None]:
        log, ghost = log_of(sim, life.rng), ghost_of(sim)
        for n, partitions in enumerate(batches):
            records = tuple((q, f"{life.name}.{n}".encode() + b"%d" % q) for q in partitions)
            try:
                placed = yield from place(log, chunk(records))
                (appended,) = yield from commit([placed])
            except OutcomeUnknown:
                honest(sim)
                continue
            for q, value in records:
                ghost.ack(sim, q, value, None if appended.offsets is None else appended.offsets[q])

    return run


def honest(sim: Simulation) -> None:
    """OutcomeUnknown is honest only after a missing answer, and when upkeep has removed or forgotten."""
    ghost = ghost_of(sim)
    must(
        any(what in ("landed", "in flight", "lost") for (what, _), _, _ in sim.history), "OutcomeUnknown without doubt"
    )
    gone = ghost.head(sim).first > 0 or any(page.forgot for page in ghost.pages(sim))
    must(gone, "OutcomeUnknown although no page was removed")


def named(sim: Simulation, batches: int = 3) -> Factory:
    """A named producer: a new life sends the last batch again and goes on."""

    def run(life: Life) -> Steps[None]:
        log, ghost = log_of(sim, life.rng), ghost_of(sim)
        item = yield from start("n")
        epoch = item["epoch"]
        for seq in range(max(1, sim.ghosts.get("sent", 0)), batches + 1):
            record = f"named.{seq}".encode()
            q = seq % PARTITIONS
            appended, item = yield from send(
                log, "n", epoch, item, seq, lambda q=q, record=record: place(log, chunk(((q, record),)))
            )
            ghost.ack(sim, q, record, appended.offsets[q] if appended.offsets else None)
            sim.ghosts["sent"] = max(sim.ghosts.get("sent", 0), seq)

    return run


def pair(sim: Simulation, times: int = 2) -> Factory:
    """Appends to two topics in one transaction."""

    def run(life: Life) -> Steps[None]:
        log, ghost = log_of(sim, life.rng), ghost_of(sim)
        other = log_of(sim, life.rng)
        other.id, other.name = "other", "u"
        for n in range(times):
            record = f"{life.name}.{n}0".encode()
            placed = yield from place(log, chunk(((0, record),)))
            second = yield from place(other, chunk(((1, record),)))
            here, there = yield from commit([placed, second])
            ghost.ack(sim, 0, record, here.offsets[0] if here.offsets else None)
            sim.ghosts["other"].ack(sim, 1, record, there.offsets[1] if there.offsets else None)

    return run


def roller(sim: Simulation, times: int = 2) -> Factory:
    def run(life: Life) -> Steps[None]:
        log = log_of(sim)
        for _ in range(times):
            head = yield from log.head()
            if head.own.packed:
                yield from roll(log, head)

    return run


def cleaner(sim: Simulation, times: int = 2) -> Factory:
    def run(life: Life) -> Steps[None]:
        for _ in range(times):
            yield from clean(log_of(sim))

    return run


def merger(sim: Simulation, begin: int = 0, times: int = 2) -> Factory:
    """Merges two neighbouring pages, from the begin'th on."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim, life.rng)
        for _ in range(times):
            found = (yield from guard.read_range(heads.head_key(log.id).p, 0, LAST - 1)).items
            pages = [Page.of(item) for item in found[begin : begin + 2]]
            if len(pages) == 2:
                yield from merge(log, pages)

    return run


def rewriter(sim: Simulation, times: int = 2) -> Factory:
    """Rewrites the first page alone, as compaction does: its records go to a new object."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim, life.rng)
        for _ in range(times):
            head = yield from log.head()
            found = (yield from guard.read_range(heads.head_key(log.id).p, 0, LAST - 1, limit=1)).items
            page = Page.of(found[0])
            try:
                new = packed((yield from read_pieces(log, page.entries, page.base)), "none")
                entry = yield from put_packed(log, head, page.entries, new)
            except (ObjectMissing, TimedOut):  # another has rewritten it, or the put had no answer
                continue
            yield from replace(log, [page], [entry], head.gen)

    return run


def retention(sim: Simulation, times: int = 2) -> Factory:
    """Raises the floor to the end of the first page, and removes what is below."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim)
        for _ in range(times):
            found = (yield from guard.read_range(heads.head_key(log.id).p, 0, LAST - 1, limit=1)).items
            if found:
                yield from raise_floor(log, Page.of(found[0]).end)
                yield from drop_pages(log)

    return run


def reader(sim: Simulation, q: int) -> Factory:
    """Follows a partition; what it is given is the log, without a gap above the floor."""

    def run(life: Life) -> Steps[None]:
        log, ghost = log_of(sim), ghost_of(sim)
        reader = Reader(log, {q: 0}, from_floor=True)
        due = 0
        while True:
            fetched = yield from reader.poll(100)
            for run in fetched:
                must(
                    run.offset == due or run.offset <= ghost.head(sim).floor[q],
                    "reader skipped records",
                    run.offset,
                    due,
                )
                values = run.data.column(3).to_pylist()
                must(
                    values == ghost.log[q][run.offset : run.end], "reader sees other records than the log's", run.offset
                )
                due = run.end
            if not fetched:
                if sim.finishing and not any(n for n in sim.running() if not n.startswith("read")):
                    must(reader.positions[q] == len(ghost.log[q]), "reader stopped early")
                    return
                yield from calls.pause(0)

    return run


def source(sim: Simulation, end: int = 4) -> Factory:
    """A serial source: position and data in one transaction.  Each life cuts its batches differently."""

    def run(life: Life) -> Steps[None]:
        log = log_of(sim, life.rng)
        item = yield from open_reader("s", 0)
        cut = 1 + life.number % 2
        while (at := item["position"]) < end:
            to = min(end, at + cut)
            records = tuple((i % PARTITIONS, b"source.%d" % i) for i in range(at, to))
            placed = yield from place(log, chunk(records))
            _, item = yield from take_in([placed], SourceGuard(reader_key("s"), item, to, {}))
            told = sim.ghosts["told"] = max(sim.ghosts.get("told", 0), item["position"])
            stored = sim.table.items[reader_key("s")]["position"]
            must(stored >= told, "the source was told more than is in the log")

    return run


def source_agrees(sim: Simulation) -> None:
    """Position and data agree."""
    item = sim.table.items.get(reader_key("s"))
    position = item["position"] if item else 0
    got = sorted(r for r in ghost_of(sim).where if r.startswith(b"source."))
    must(got == sorted(b"source.%d" % i for i in range(position)), "position and data disagree", got, position)
