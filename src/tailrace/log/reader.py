"""Reading: from an offset, page by page, chunk by chunk, without ever skipping and without waiting on a writer.

A reader keeps the page it is in.  A page it opens must begin at its position, else it seeks again; an object that is
gone was merged or removed, so it reads the page again, and only if nothing changed there is it damage.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tailrace.coordination import guard
from tailrace.coordination.rules import in_force
from tailrace.errors import Damaged, Lost, ObjectMissing, OutOfRange
from tailrace.log import head as heads
from tailrace.log import missing
from tailrace.log.append import Log
from tailrace.log.chunk import MANIFEST, OFFSETS, Run, decode
from tailrace.log.fetched import Fetched, without_offsets
from tailrace.log.head import Entry, Head, Page
from tailrace.log.manifest import listed
from tailrace.log.quarantine import covering, passes
from tailrace.log.runs import lost_with, named, placed, read_runs, where_is
from tailrace.log.seeking import seek
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST

_log = logging.getLogger("tailrace")
SHOWN = 1.0
"""Seconds after which a page that does not show is looked for as conditions see it: it may be lost."""

POLL_BYTES = 8 * 1024 * 1024


class Reader:
    """Follows some partitions of a topic from given offsets; `poll` gives what is there now.

    `positions` are the next offsets to read.  Below the floor: an error that says the floor, or (`from_floor`) the
    floor is where it starts.  `until` has the offsets to stop before, if any.  `times` (milliseconds, both ends
    included): runs without a record in it are passed over unread.  `every`: partitions that the topic gets later are
    read too.  `passed`: how many times the topic has grown that may be read over (None: all); a group's readers wait
    there for each other.  `columns`: of what is stored, only these are decoded (None: all);
    if there are none, chunks are not fetched either."""

    def __init__(
        self,
        log: Log,
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
        """Whether the last poll saw that the topic has grown more often than may be read over."""
        self.skipped: list[Lost] = []
        """Damaged offsets that were passed because they are quarantined."""
        self._stops: dict[int, int] = {}
        self._page: Page | None = None
        self._missing: tuple[str, int, int] | None = None
        self._manifests: dict[str, tuple[Entry, ...]] = {}
        self._quarantined: bool | None = None

    def poll(self, max_bytes: int = POLL_BYTES, max_records: int = LAST) -> Steps[list[Fetched]]:
        """The next records, at least one chunk's if there are any; an empty list when all has been read.

        `positions` move when it returns: one that fails, or is dropped half-way, has given nothing."""
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
        """Go on behind lost offsets that are quarantined, and say so; False if they are not."""
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
        """Where to stop reading for now: at the end, or where the topic has grown and others are not done yet."""
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
        """When the waiting for a page to show began; one that is lost may be quarantined."""
        at = yield from calls.now()
        if began is None or at - began <= SHOWN:
            return at if began is None else began
        for q in wanted:
            page = yield from seek(self.log, head, q, self.positions[q])
            gap = yield from missing.gap_at(self.log, page.last + 1 if page else head.first)
            if gap is not None:
                if not (yield from self._pass(self._mine(gap.lost))):
                    raise missing.damage(self.log, gap)
                return None
        return at

    def _mine(self, lost: Iterable[Lost]) -> list[Lost]:
        """Of lost offsets, those still to be read here."""
        return [one for one in lost if self.positions.get(one.partition, one.end) < one.end]

    # -- pages
    def _open(self, head: Head, wanted: Iterable[int]) -> Steps[Page | None]:
        """The lowest page with something wanted; None if it does not show yet."""
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
        # the page between may have been merged into an older one, or not show yet: then seek
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
        out: list[Fetched] = []
        here, at, size, records = dict(self.positions), heads.plus(page.base, {}), 0, 0
        for entry in (yield from self._entries(page)) or ():
            runs = self._wanted(entry, at, here)
            if runs:
                length, count = sum(r.length for r in runs), sum(r.count for r in runs)
                if size and (size + length > max_bytes or records + count > max_records):
                    break
                try:
                    got = yield from self._read(page, entry, runs, at, here)
                except Exception:
                    if not out:
                        raise
                    break  # first what was read before it; the next poll meets it again
                if got is None:
                    break
                out += got
                size, records = size + length, records + count
            at = heads.plus(at, entry.counts)
        self.positions.update(here)
        return out

    def _entries(self, page: Page) -> Steps[Sequence[Entry] | None]:
        """A page's entries, in place of a manifest what it lists; None if that is gone, and so perhaps the page."""
        if not any(entry.kind & MANIFEST for entry in page.entries):
            return page.entries
        out: list[Entry] = []
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

    def _listed(self, entry: Entry, data: memoryview, at: Mapping[int, int]) -> tuple[Entry, ...]:
        try:
            return listed(entry, data, where_is(self.log.id, entry))
        except Damaged as error:
            raise named(error, self.log.name, lost_with(entry.runs, at)) from error

    def _wanted(self, entry: Entry, at: Mapping[int, int], here: dict[int, int]) -> list[Run]:
        """The runs to read; those of another time, and those that compaction has emptied, are passed over."""
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
        self, page: Page, entry: Entry, runs: list[Run], at: Mapping[int, int], here: dict[int, int]
    ) -> Steps[list[Fetched] | None]:
        """Some runs, moving `here` over them; None if they are gone and the page should be read again."""
        if (yield from self._told(entry)):
            decoded = [[_bare(run.count)] for run in runs]
        else:
            data = yield from self._bytes(page, entry, runs, at)
            if data is None:
                return None
            pieces = zip(runs, data, strict=True)
            decoded = [self._decoded(entry, run, at[run.partition], piece) for run, piece in pieces]
        cut = self._cut_with_gaps if entry.kind & OFFSETS else self._cut
        return [f for run, some in zip(runs, decoded, strict=True) for f in cut(run, at[run.partition], some, here)]

    def _told(self, entry: Entry) -> Steps[bool]:
        """Whether the entry says all that is wanted, how many records there are; then its chunk is not fetched.

        Where offsets are quarantined it is: which of them are lost shows in the bytes alone."""
        if self.columns is None or self.columns or entry.kind & OFFSETS:
            return False
        if self._quarantined is None:
            self._quarantined = bool((yield from passes(self.log)))
        return not self._quarantined

    def _bytes(
        self, page: Page, entry: Entry, runs: Sequence[Run], at: Mapping[int, int]
    ) -> Steps[list[memoryview] | None]:
        try:
            return (yield from read_runs(self.log, entry, runs))
        except Damaged as error:
            raise named(error, self.log.name, lost_with(runs, at)) from error
        except ObjectMissing as error:
            mark = (entry.id, page.first, page.v)
            if self._missing == mark:
                lost = lost_with(runs, at)
                raise Damaged(
                    f"{error.name} is gone, and with it {placed(self.log.name, lost)}; restore it from a backup",
                    where=error.name,
                    topic=self.log.name,
                    lost=lost,
                ) from error
            self._missing, self._page = mark, None
            return None

    def _decoded(self, entry: Entry, run: Run, first: int, data: memoryview) -> list[pa.RecordBatch]:
        try:
            return decode(entry.kind, run, data, where_is(self.log.id, entry), self.columns)
        except Damaged as error:
            raise named(error, self.log.name, lost_with([run], {run.partition: first})) from error

    def _cut(self, run: Run, first: int, batches: list[pa.RecordBatch], here: dict[int, int]) -> Iterator[Fetched]:
        """The rows from where this reader is up to where it stops."""
        q = run.partition
        end = self._stops[q]
        for batch in batches:
            skip = max(here[q] - first, 0)
            rows = min(batch.num_rows, end - first) - skip
            if rows > 0:
                yield Fetched(q, first + skip, batch.slice(skip, rows))
            first += batch.num_rows
            here[q] = max(here[q], min(first, end))

    def _cut_with_gaps(
        self, run: Run, first: int, batches: list[pa.RecordBatch], here: dict[int, int]
    ) -> Iterator[Fetched]:
        """The same of a compacted chunk, whose records say their offsets."""
        q = run.partition
        end = self._stops[q]
        for batch in batches:
            gaps = batch.column(batch.num_columns - 1)
            whole = Fetched(q, gaps[0].as_py(), without_offsets(batch), gaps)
            if (found := whole.between(here[q], end)).data.num_rows:
                yield found
        here[q] = max(here[q], min(first + run.count, end))


def _overlaps(run: Run, times: tuple[int, int]) -> bool:
    return run.latest >= times[0] and run.latest - run.span <= times[1]


def _bare(count: int) -> pa.RecordBatch:
    """So many rows without a column."""
    return pa.record_batch({"": pa.nulls(count)}).remove_column(0)
