"""Scrub: reads the bytes of a topic again and compares them with what its table says about them.

It reads every run of every chunk, computes its checksum and counts its records.  Missing bytes are damage only if a
fresh look at their page still refers to them.  Otherwise upkeep has merged or removed them meanwhile, and scrub reads
what took their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import crc32c
import pyarrow as pa

from tailrace.coordination import guard
from tailrace.errors import Damaged, Lost, ObjectMissing
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, OFFSETS, PartitionRun, batches_of
from tailrace.log.format.head import ChunkEntry, Page
from tailrace.log.format.manifest import listed
from tailrace.log.format.run import lost_with, read_runs, where_is
from tailrace.log.integrity.damage import Damage, Kind, PageWalk
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Steps

MAX_BYTES_PER_READ = 16 * 1024 * 1024
"""Bytes of a run above which it is read in pieces, so that memory stays bounded; its records are then not counted."""


@dataclass(slots=True)
class ScrubResult:
    """What a scrub has found."""

    damages: list[Damage] = field(default_factory=list)
    bytes: int = 0
    runs: int = 0
    records: int = 0
    at_most: bool = False
    """Whether there may be fewer records: for a long run of a compacted chunk only the number before compaction is
    known."""
    chunks: int = 0

    def add(self, other: ScrubResult) -> None:
        """Add another result to this one."""
        self.damages += other.damages
        self.bytes, self.runs = self.bytes + other.bytes, self.runs + other.runs
        self.records, self.chunks = self.records + other.records, self.chunks + other.chunks
        self.at_most = self.at_most or other.at_most


@dataclass(frozen=True, slots=True)
class ChunkToScrub:
    """One chunk to scrub: its page, and the offsets at which its records begin."""

    page: Page
    entry: ChunkEntry
    at: Mapping[int, int]


def pieces(page: Page) -> Iterator[ChunkToScrub]:
    """The chunks on a page, each as a piece that one thread scrubs."""
    at = heads.plus(page.base, {})
    for entry in page.entries:
        yield ChunkToScrub(page, entry, at)
        at = heads.plus(at, entry.counts)


def scrub_topic(log: TopicLog) -> Steps[ScrubResult]:
    """Scrub a whole topic, one chunk after the other."""
    walk, found = PageWalk(log), ScrubResult()
    while (page := (yield from walk.next())) is not None:
        for piece in pieces(page):
            found.add((yield from scrub_piece(log, piece)))
    found.damages += walk.found
    return found


def scrub_piece(log: TopicLog, piece: ChunkToScrub) -> Steps[ScrubResult]:
    """Scrub one chunk; if it was merged meanwhile, the chunks that its records are in now."""
    try:
        return (yield from _scrub_chunk(log, piece.entry, piece.at))
    except Damaged as error:  # the storage itself cannot read it
        lost = tuple(lost_with(piece.entry.runs, piece.at))
        return ScrubResult([_unreadable(log, piece.entry, error, lost)])
    except ObjectMissing as error:
        page = yield from _fresh(log, piece.page)
        if page is None:
            return ScrubResult()
        if any(entry.id == piece.entry.id for entry in page.entries):
            lost = tuple(lost_with(piece.entry.runs, piece.at))
            kept = yield from _kept(log, lost)
            return ScrubResult([Damage("missing", "it is gone", log.name, error.name, lost=kept)] if kept else [])
        found = ScrubResult()
        for other in pieces(page):
            if _overlap(other, piece):
                found.add((yield from scrub_piece(log, other)))
        return found


def _overlap(one: ChunkToScrub, other: ChunkToScrub) -> bool:
    return any(
        one.at[q] < other.at[q] + n and other.at[q] < one.at[q] + one.entry.counts.get(q, 0)
        for q, n in other.entry.counts.items()
    )


def _fresh(log: TopicLog, page: Page) -> Steps[Page | None]:
    """The page that has these records now, from linearizable reads; None if retention has removed it."""
    while True:
        head = log.saw((yield from guard.truth(heads.head_key(log.id))))
        if page.first < head.first:
            return None
        if page.first >= head.page:
            return head.own
        if (item := (yield from guard.truth(heads.page_key(log.id, page.first)))) is not None:
            return Page.of(item)
        items, _ = yield from guard.read_range(heads.head_key(log.id).p, 0, page.first, descending=True, limit=1)
        if items and (found := Page.of(items[0])).last >= page.first:
            return found
        if (yield from log.head()).first == head.first:
            return None  # the walk reports the gap itself


def _kept(log: TopicLog, lost: tuple[Lost, ...]) -> Steps[tuple[Lost, ...]]:
    """The damage, without offsets below the floors, which no reader may read."""
    floor = (yield from log.head()).floor
    return tuple(Lost(q, max(first, floor[q]), end) for q, first, end in lost if end > floor[q])


# --- bytes
def _scrub_chunk(log: TopicLog, entry: ChunkEntry, at: Mapping[int, int]) -> Steps[ScrubResult]:
    if entry.kind & MANIFEST:
        return (yield from _scrub_manifest(log, entry, at))
    found = ScrubResult(chunks=1, runs=len(entry.runs))
    for group in _groups(entry):
        try:
            yield from _scrub_runs(log, entry, group, at, found)
        except Damaged:
            if entry.inline:
                raise
            for run in group:  # the disk cannot read one of the runs; the others may be intact
                yield from _scrub_alone(log, entry, run, at, found)
    return found


def _scrub_runs(
    log: TopicLog, entry: ChunkEntry, group: list[PartitionRun], at: Mapping[int, int], found: ScrubResult
) -> Steps[None]:
    if len(group) == 1 and group[0].length > MAX_BYTES_PER_READ:
        yield from _scrub_slices(log, entry, group[0], at, found)
        return
    for run, data in zip(group, (yield from read_runs(log.id, entry, group)), strict=True):
        found.bytes += len(data)
        rows, damages = _judge(log, entry, run, at, data)
        found.records += rows
        found.damages += damages


def _scrub_alone(
    log: TopicLog, entry: ChunkEntry, run: PartitionRun, at: Mapping[int, int], found: ScrubResult
) -> Steps[None]:
    try:
        yield from _scrub_runs(log, entry, [run], at, found)
    except Damaged as again:
        found.damages.append(_unreadable(log, entry, again, tuple(lost_with([run], at))))


def _unreadable(log: TopicLog, entry: ChunkEntry, error: Damaged, lost: tuple[Lost, ...]) -> Damage:
    kind: Kind = "item" if entry.inline else "bytes"
    return Damage(kind, str(error), log.name, where_is(log.id, entry), error.position, lost)


def _groups(entry: ChunkEntry) -> Iterator[list[PartitionRun]]:
    """Runs that are read together."""
    group: list[PartitionRun] = []
    for run in entry.runs:
        if group and sum(r.length for r in group) + run.length > MAX_BYTES_PER_READ:
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _judge(
    log: TopicLog, entry: ChunkEntry, run: PartitionRun, at: Mapping[int, int], data: memoryview
) -> tuple[int, list[Damage]]:
    """How many records of a run can be read, and the damage in it."""
    where, lost = where_is(log.id, entry), tuple(lost_with([run], at))
    rows = 0
    try:
        for batch in batches_of(entry.kind, run, data, where):
            rows += batch.num_rows
    except Damaged:
        return 0, [_wrong(log, where, run, lost, len(data))]
    except MemoryError:
        raise  # Arrow raises this as one of its own errors, too
    except (pa.ArrowException, ValueError, OSError) as error:
        return 0, [Damage("records", f"its records cannot be decoded: {error}", log.name, where, run.position, lost)]
    if (entry.kind & OFFSETS and rows > run.count) or (not entry.kind & OFFSETS and rows != run.count):
        text = f"it has {rows:,} records, and {run.count:,} by its reference"
        return rows, [Damage("records", text, log.name, where, run.position, lost)]
    return rows, []


def _wrong(log: TopicLog, where: str, run: PartitionRun, lost: tuple[Lost, ...], length: int) -> Damage:
    if length < run.length:
        text = f"it is cut {run.length - length:,} bytes before the end of the records at {run.position:,}"
        return Damage("bytes", text, log.name, where, run.position + length, lost)
    text = f"the checksum of the {run.length:,} bytes from here differs"
    return Damage("bytes", text, log.name, where, run.position, lost)


def _scrub_slices(
    log: TopicLog, entry: ChunkEntry, run: PartitionRun, at: Mapping[int, int], found: ScrubResult
) -> Steps[None]:
    crc = done = 0
    while done < run.length:
        part = PartitionRun(
            run.partition, run.count, run.position + done, min(MAX_BYTES_PER_READ, run.length - done), 0, 0, 0
        )
        (data,) = yield from read_runs(log.id, entry, [part])
        crc, done = crc32c.crc32c(data, crc), done + len(data)
        if len(data) < part.length:
            break
    found.bytes += done
    if done < run.length or crc != run.crc:
        lost = tuple(lost_with([run], at))
        found.damages.append(_wrong(log, where_is(log.id, entry), run, lost, done))
        return
    found.records += run.count
    found.at_most = found.at_most or bool(entry.kind & OFFSETS)


def _scrub_manifest(log: TopicLog, entry: ChunkEntry, at: Mapping[int, int]) -> Steps[ScrubResult]:
    where = where_is(log.id, entry)
    data = (yield from read_runs(log.id, entry, entry.runs[:1]))[0]
    found = ScrubResult(bytes=len(data), chunks=1)
    try:
        entries = listed(entry, data, where)
    except Damaged as error:
        lost = tuple(lost_with(entry.runs, at))
        found.damages.append(Damage("manifest", str(error), log.name, where, error.position, lost))
        return found
    for chunk in entries:
        try:
            found.add((yield from _scrub_chunk(log, chunk, at)))
        except ObjectMissing as error:
            if (yield from _still_there(log, entry)):
                lost = yield from _kept(log, tuple(lost_with(chunk.runs, at)))
                if lost:
                    found.damages.append(Damage("missing", "it is gone", log.name, error.name, lost=lost))
            else:
                raise
        at = heads.plus(at, chunk.counts)
    return found


def _still_there(log: TopicLog, manifest: ChunkEntry) -> Steps[bool]:
    """Whether a chunk in a manifest is still referred to: cleaning removes the chunks of a manifest before the
    manifest, so if the manifest is gone, cleaning removed all of them."""
    try:
        yield from read_runs(log.id, manifest, manifest.runs[:1])
    except ObjectMissing:
        return False
    return True
