"""Reading: from an offset, page by page, chunk by chunk, without ever skipping and without waiting on a writer.

A reader keeps the page it is in.  A page it opens must begin at its position, else it seeks again.  An object that is
gone was probably merged or removed, so the reader reads the page again; if the page still refers to it, that is damage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, Lost, ObjectMissing, OutOfRange
from tailrace.log.format import head as heads
from tailrace.log.format.chunk import MANIFEST, OFFSETS, PartitionRun, bare, batches_of
from tailrace.log.format.head import ChunkEntry, Head, Page
from tailrace.log.format.manifest import listed
from tailrace.log.format.run import lost_with, named, passing, placed, read_runs, where_is
from tailrace.log.integrity import missing_pages
from tailrace.log.integrity.quarantine import covering, passes
from tailrace.log.read.fetched import Fetched, without_offsets
from tailrace.log.read.poll import PartlyReadChunk, PolledRecords, RunBatches
from tailrace.log.read.seek import seek
from tailrace.log.topic_log import TopicLog
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST

_log = logging.getLogger("tailrace")
SECONDS_UNTIL_MISSING_PAGE_IS_CHECKED = 1.0
"""Seconds that a reader waits for a page to become visible, before a linearizable read checks whether the page is
lost."""

POLL_BYTES = 8 * 1024 * 1024


class Reader:
    """Follows some partitions of a topic from given offsets; `poll` returns the records available now.

    `positions` are the next offsets to read.  A position below the floor is an error that names the floor; with
    `from_floor` the reader starts there.  `until` has the offsets to stop before, if any.  `times` (milliseconds, both
    ends included): the reader skips runs without a record in that range.  `every`: partitions that the topic gets later
    are read too.  `passed`: how many growths of the topic may be read past (None: all); the readers of a group wait for
    each other at a growth.  `columns`: decode only these (None: all); with none, chunks are not even fetched."""

    def __init__(
        self,
        log: TopicLog,
        positions: Mapping[int, int],
        *,
        from_floor: bool = False,
        until: Mapping[int, int] | None = None,
        times: tuple[int, int] | None = None,
        every: bool = False,
        passed: int | None = None,
        columns: frozenset[str] | None = None,
    ) -> None:
        self.log = log
        self.positions = dict(positions)
        self.from_floor = from_floor
        self.until, self.times = until or {}, times
        self.every, self.passed, self.columns = every, passed, columns
        self.ends: dict[int, int] = {}
        self.waits = False
        """Whether the last poll stopped at a growth of the topic that this reader may not pass yet."""
        self.skipped: list[Lost] = []
        """Damaged offsets that were passed because they are quarantined."""
        self._stops: dict[int, int] = {}
        self._page: Page | None = None
        self._missing: tuple[str, int, int] | None = None
        self._manifests: dict[str, tuple[ChunkEntry, ...]] = {}
        self._quarantined: bool | None = None
        self._begun: PartlyReadChunk | None = None

    def poll(self, max_bytes: int = POLL_BYTES, max_records: int = LAST) -> Steps[list[Fetched]]:
        """The next records; an empty list when all has been read.  It returns at least one chunk, or at least one batch
        of a compressed chunk, which may be much larger than its stored bytes.

        `positions` move when it returns: a poll that fails or is dropped half-way has returned nothing."""
        began = None
        while True:
            head = yield from self.log.head()
            if self.every:
                self.positions = {**dict.fromkeys(range(head.partitions), 0), **self.positions}
            self.ends = {q: self._end(q, head) for q in self.positions}
            self._stops = self._stop(head)
            self._check(head)
            wanted = [q for q, at in self.positions.items() if at < self._stops[q]]
            if not wanted:
                return []
            before = dict(self.positions)
            page = yield from self._open(head, wanted)
            try:
                fetched = (yield from self._fetch(page, max_bytes, max_records)) if page else []
            except Damaged as error:
                if not (yield from self._pass(error.lost)):
                    raise
                continue
            if fetched:
                return fetched
            if self.positions == before:
                began = yield from self._waited(began, head, wanted)
                yield from calls.pause(0)

    def _pass(self, lost: Sequence[Lost]) -> Steps[bool]:
        """Continue behind lost offsets if they are quarantined, and log that; False if they are not."""
        decided = (yield from covering(self.log, lost)) if lost else None
        for gone, one in zip(lost, decided or (), strict=False):
            q, end = gone.partition, min(gone.end, self.ends.get(gone.partition, 0))
            if self.positions.get(q, end) < end:
                self.skipped.append(Lost(q, self.positions[q], end))
                self.positions[q], self._page = end, None
                _log.warning("%s passed: quarantined by %s: %s", placed(self.log.name, [gone]), one.who, one.why)
        return bool(decided)

    def _end(self, q: int, head: Head) -> int:
        end = head.next.get(q, 0)
        return min(end, self.until[q]) if q in self.until else end

    def _stop(self, head: Head) -> dict[int, int]:
        """Where to stop reading for now: at the end, or where the topic has grown and the group has not passed the
        growth."""
        self.waits = self.passed is not None and self.passed < len(head.grown) and in_force("grow.early")
        if not self.waits:
            return self.ends
        at = head.grown[self.passed or 0].at
        return {q: min(end, at[q]) for q, end in self.ends.items()}

    def _check(self, head: Head) -> None:
        for q, at in self.positions.items():
            floor, end = head.floor.get(q, 0), head.next.get(q, 0)
            if at < floor and self.from_floor:
                self.positions[q], self._page = floor, None
            elif at < floor:
                raise OutOfRange(
                    f"offset {at} of partition {q} of {self.log.name!r} was removed; the first that is kept is {floor}",
                    floor=floor,
                    end=end,
                )

    def _waited(self, began: float | None, head: Head, wanted: Iterable[int]) -> Steps[float | None]:
        """When the reader began to wait for a page to become visible; if the page is lost, an operator may have
        quarantined the loss."""
        at = yield from calls.now()
        if began is None or at - began <= SECONDS_UNTIL_MISSING_PAGE_IS_CHECKED:
            return at if began is None else began
        for q in wanted:
            page = yield from seek(self.log, head, q, self.positions[q])
            gap = yield from missing_pages.gap_at(self.log, page.last + 1 if page else head.first)
            if gap is not None:
                if not (yield from self._pass(self._unread_part(gap.lost))):
                    raise missing_pages.damage(self.log, gap)
                return None
        return at

    def _unread_part(self, lost: Iterable[Lost]) -> list[Lost]:
        """The part of the lost offsets that this reader has not read past yet."""
        return [one for one in lost if self.positions.get(one.partition, one.end) < one.end]

    # -- pages
    def _open(self, head: Head, wanted: Iterable[int]) -> Steps[Page | None]:
        """The lowest page that has something this reader wants; None if it is not visible yet."""
        older = [q for q in wanted if self.positions[q] < head.own.base.get(q, 0)]
        if not older:
            self._page = None
            return head.own
        if self._page is not None and not self._has(self._page, older):
            self._page = yield from self._following(self._page, older)
        if self._page is None or not self._has(self._page, older):
            self._page = yield from self._seek(head, older)
        return self._page

    def _has(self, page: Page, wanted: Iterable[int]) -> bool:
        return any(page.base[q] <= self.positions[q] < page.end[q] for q in wanted)

    def _following(self, page: Page, wanted: Iterable[int]) -> Steps[Page | None]:
        items, _ = yield from guard.read_range(heads.head_key(self.log.id).p, page.last + 1, LAST - 1, limit=1)
        found = Page.of(items[0]) if items else None
        # the page between may have been merged into an older one, or may not be visible yet: then seek
        return found if found and all(found.base[q] <= self.positions[q] for q in wanted) else None

    def _seek(self, head: Head, wanted: Iterable[int]) -> Steps[Page | None]:
        best: Page | None = None
        for q in wanted:
            page = yield from seek(self.log, head, q, self.positions[q])
            if page is None:
                return None
            best = page if best is None or page.first < best.first else best
        return best

    # -- chunks
    def _fetch(self, page: Page, max_bytes: int, max_records: int) -> Steps[list[Fetched]]:
        here, at = dict(self.positions), heads.plus(page.base, {})
        haul = PolledRecords(max_bytes, max_records)
        for entry in (yield from self._entries(page)) or ():
            runs = self._wanted(entry, at, here)
            if runs:
                if not haul.begin(runs):
                    break
                try:
                    whole = yield from self._read(page, entry, runs, at, here, haul)
                except Exception:
                    if not haul.fetched:
                        raise
                    break  # return what was read before it; the next poll raises it again
                if not whole:
                    break
            at = heads.plus(at, entry.counts)
        self.positions.update(here)
        return haul.fetched

    def _entries(self, page: Page) -> Steps[Sequence[ChunkEntry] | None]:
        """A page's entries, with each manifest replaced by the entries it lists; None if a manifest is gone, and so
        perhaps the page."""
        if not any(entry.kind & MANIFEST for entry in page.entries):
            return page.entries
        out: list[ChunkEntry] = []
        at = heads.plus(page.base, {})
        for entry in page.entries:
            ends = heads.plus(at, entry.counts)
            if entry.kind & MANIFEST and any(self.positions.get(q, ends[q]) < ends[q] for q in entry.counts):
                if entry.id not in self._manifests:
                    data = yield from self._bytes(page, entry, entry.runs, at)
                    if data is None:
                        return None
                    self._manifests = {entry.id: self._listed(entry, data[0], at)}
                out += self._manifests[entry.id]
            else:
                out.append(entry)
            at = ends
        return out

    def _listed(self, entry: ChunkEntry, data: memoryview, at: Mapping[int, int]) -> tuple[ChunkEntry, ...]:
        try:
            return listed(entry, data, where_is(self.log.id, entry))
        except Damaged as error:
            raise named(error, self.log.name, lost_with(entry.runs, at)) from error

    def _wanted(self, entry: ChunkEntry, at: Mapping[int, int], here: dict[int, int]) -> list[PartitionRun]:
        """The runs to read: without those outside the wanted times and those that compaction has emptied."""
        out = []
        for run in entry.runs:
            q = run.partition
            position = here.get(q, -1)
            if at[q] <= position < min(at[q] + run.count, self._stops.get(q, 0)):
                if not run.length or (self.times and not _overlaps(run, self.times)):
                    here[q] = at[q] + run.count
                else:
                    out.append(run)
        return out

    def _read(
        self,
        page: Page,
        entry: ChunkEntry,
        runs: list[PartitionRun],
        at: Mapping[int, int],
        here: dict[int, int],
        haul: PolledRecords,
    ) -> Steps[bool]:
        """Read some runs, and move `here` past them.  False: there was no room for all of them, or they are gone and
        the page should be read again."""
        begun, self._begun = self._begun, None
        if (yield from self._entry_suffices(entry)):
            begun = None
        elif begun is None or not begun.has(entry.id, runs):
            data = yield from self._bytes(page, entry, runs, at)
            if data is None:
                return False
            begun = PartlyReadChunk(entry.id, {run.partition: piece for run, piece in zip(runs, data, strict=True)})
        for run in runs:
            q = run.partition
            first, batches = self._batches(entry, run, at[q], begun, here[q])
            for batch in batches:
                if not haul.has_room(batch):
                    assert begun is not None, "rows without columns take no room"
                    batches.put_back(batch)
                    self._begun = begun.stopped(q, here[q], first, batches)
                    return False
                cut = self._cut_with_gaps if entry.kind & OFFSETS else self._cut
                if (some := cut(q, first, batch, here)) is not None:
                    haul.add(some)
                first += batch.num_rows
                if here[q] >= self._stops[q]:
                    break
            here[q] = max(here[q], min(at[q] + run.count, self._stops[q]))
        return True

    def _entry_suffices(self, entry: ChunkEntry) -> Steps[bool]:
        """Whether the entry alone answers the reader, which only counts records; then the chunk is not fetched.  Where
        offsets are quarantined it is fetched: only the bytes show which of them are lost."""
        if self.columns is None or self.columns or entry.kind & OFFSETS:
            return False
        if self._quarantined is None:
            self._quarantined = bool((yield from passes(self.log)))
        return not self._quarantined

    def _bytes(
        self, page: Page, entry: ChunkEntry, runs: Sequence[PartitionRun], at: Mapping[int, int]
    ) -> Steps[list[memoryview] | None]:
        try:
            return (yield from read_runs(self.log.id, entry, runs))
        except Damaged as error:
            if entry.inline or len(runs) == 1:
                raise named(error, self.log.name, lost_with(runs, at)) from error
            return (yield from self._bytes_one_by_one(page, entry, runs, at))
        except ObjectMissing as error:
            mark = (entry.id, page.first, page.revision)
            if self._missing == mark:
                lost = lost_with(runs, at)
                raise Damaged(
                    f"{error.name} is gone, and with it {placed(self.log.name, lost)}; restore it from a backup; "
                    f"{passing(self.log.name)}",
                    where=error.name,
                    topic=self.log.name,
                    lost=lost,
                ) from error
            self._missing, self._page = mark, None
            return None

    def _bytes_one_by_one(
        self, page: Page, entry: ChunkEntry, runs: Sequence[PartitionRun], at: Mapping[int, int]
    ) -> Steps[list[memoryview] | None]:
        """Fetch the runs one by one, after the storage failed to read them together: the error then names only the
        records of one run."""
        out: list[memoryview] = []
        for run in runs:
            if (data := (yield from self._bytes(page, entry, [run], at))) is None:
                return None
            out += data
        return out

    def _batches(
        self, entry: ChunkEntry, run: PartitionRun, first: int, begun: PartlyReadChunk | None, position: int
    ) -> tuple[int, RunBatches]:
        """The batches of a run that are left to read, and the offset at which they begin."""
        q = run.partition
        if begun is None:
            return first, RunBatches(iter([bare(run.count)]))
        if (rest := begun.rest(q, position)) is not None:
            return rest
        where, skip = where_is(self.log.id, entry), max(position - first, 0)
        try:
            return first, RunBatches(batches_of(entry.kind, run, begun.data[q], where, self.columns, skip))
        except Damaged as error:
            raise named(error, self.log.name, lost_with([run], {q: first})) from error

    def _cut(self, q: int, first: int, batch: pa.RecordBatch, here: dict[int, int]) -> Fetched | None:
        """The rows between the reader's position and the offset where it stops; None if there are none."""
        end = self._stops[q]
        skip = max(here[q] - first, 0)
        rows = min(batch.num_rows, end - first) - skip
        here[q] = max(here[q], min(first + batch.num_rows, end))
        return Fetched(q, first + skip, batch.slice(skip, rows)) if rows > 0 else None

    def _cut_with_gaps(self, q: int, first: int, batch: pa.RecordBatch, here: dict[int, int]) -> Fetched | None:
        """As `_cut`, for a compacted chunk, whose records store their offsets."""
        gaps = batch.column(batch.num_columns - 1)
        found = Fetched(q, gaps[0].as_py(), without_offsets(batch), gaps).between(here[q], self._stops[q])
        here[q] = max(here[q], min(int(gaps[-1].as_py()) + 1, self._stops[q]))
        return found if found.data.num_rows else None


def _overlaps(run: PartitionRun, times: tuple[int, int]) -> bool:
    return run.latest >= times[0] and run.latest - run.span <= times[1]
