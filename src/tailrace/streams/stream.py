"""Streams: the changes of a table as one sequence, which a reader can stop anywhere and resume from a token.

    stream = Stream(changes, "trim_horizon", table="users")
    record = next(stream)          # a record, or None: nothing new right now
    token = stream.token           # JSON; Stream(changes, token, …) goes on after the last record delivered

`active_shards` decides which change is next, and which shards are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from tailrace.errors import BadItem, NotReady
from tailrace.storage import forks
from tailrace.storage.changes import Change, Changes
from tailrace.streams.active_shards import ActiveShards
from tailrace.streams.following import ChangeFollower
from tailrace.streams.patience import Patience
from tailrace.streams.start import bad_start, check_age, latest_places, second_of
from tailrace.streams.token import JSON, Token, decode

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.streams.arrow import Columns

R = TypeVar("R")

Start: TypeAlias = str | datetime | Mapping[str, Any]
""""trim_horizon" (the oldest change that is kept), "latest", a time with a zone, or a token."""

PAGE = 1000
"""Changes in one read of a shard, at most."""
BATCH = 10_000
"""The most changes in one Arrow batch."""
THREADS = 8
"""Shards that are read at the same time, at most."""
PAUSE = 1.0
"""Seconds between two looks of a follower that has read everything, at most."""

log = logging.getLogger(__name__)


class Stream(Iterator[R | None], Generic[R]):
    """The changes of one table.  Only one thread at a time may use it.

    `make` turns a change into the record that `next` returns.  `threads` is how many shards the stream asks at the same
    time.  `bad_items` says what an item that does not fit the model does: "raise" raises `BadItem`, "skip" leaves the
    change out with a warning."""

    def __init__(
        self,
        changes: Changes,
        position: Start,
        *,
        table: str,
        make: Callable[[Change], R],
        columns: Callable[[], Columns] | None = None,
        page: int = PAGE,
        bad_items: Literal["raise", "skip"] = "raise",
        heartbeat: bool = True,
        threads: int = THREADS,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        self._changes, self._make, self._page, self._clock = changes, make, page, clock
        self._columns = columns
        self._patience = patience or Patience()
        self._automatic, self._threads, self._bad_items = heartbeat, threads, bad_items
        self.skipped = 0
        """How many changes were left out because their items do not fit the model."""
        self._pool: ThreadPoolExecutor | None = None
        self._cut_off: JSON | None = None
        """The place at which a batch began that is being read, or that an error or Ctrl-C has cut off."""
        self._forked = False
        forks.watch(self)
        self.move_to(position)

    def left_behind(self) -> None:
        """Give nothing more: this is a forked child's copy, whose threads exist in the parent only."""
        self._forked = True

    def _check_process(self) -> None:
        if self._forked:
            raise forks.refusal()

    # -- reading
    def __next__(self) -> R | None:
        """Return the next change, or None if there is none right now; asks the service only when needed, and blocks for
        its answer.

        `BadItem` if an item does not fit the model: the stream then stays before it, unless bad items are skipped."""
        while (record := self.next_ready()) is None:
            if not self.ask():
                return None
        return record

    def ask(self) -> bool:
        """Ask the service for the next change, if needed; returns False if there is none right now."""
        self._check_process()
        if self._cut_off is not None:
            self.move_to(self._cut_off)
        return self._active.first() is not None

    def next_ready(self) -> R | None:
        """Return the next change that needs no request to the service; after None, call `ask`."""
        self._check_process()
        while self._cut_off is None and (reader := self._active.ready()) is not None:
            try:
                record = self._make(reader.buffer[0])
            except BadItem as error:
                if self._bad_items == "raise":
                    raise
                self._skip(error)
                self._active.take_first(reader)
            else:
                self._active.take_first(reader)
                return record
        return None

    def batches(self, max_records: int = BATCH) -> Iterator[pa.RecordBatch]:
        """Yield the changes there are now as Arrow batches: type, created_at, sequence_number, id, and key, new, old,
        typed by the model.

        Faster than `next`, in the same order; the token is behind the last batch yielded.  `BadItem` as with `next`,
        after the changes before that item were yielded."""
        from tailrace.streams.arrow import UNFIT

        if self._columns is None:
            raise NotReady("this stream was made without columns; engine.stream(…) makes one that gives Arrow batches")
        columns = self._columns()
        while True:
            changes = self._begin_batch(max_records)
            if not changes:
                self._cut_off = None
                return
            try:
                batch = columns(changes)
            except UNFIT:
                assert self._cut_off is not None
                self.move_to(self._cut_off)
                self._cut_off = self.token
                yield from self._fitting(len(changes), columns)
            else:
                self._cut_off = None
                yield batch

    def _fitting(self, most: int, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Go through the next changes one by one, since one of them does not fit.  Yield those that fit; with bad items
        raised, yield those before it and raise `BadItem`."""
        fit: list[Change] = []
        passed: list[BadItem] = []
        unfit: BadItem | None = None
        for _ in range(most):
            try:
                reader = self._active.first()
            except Exception:
                if fit:
                    break
                raise
            if reader is None:
                break
            try:
                self._make(reader.buffer[0])
                columns.check(reader.buffer[0], self.table)
                fit.append(reader.buffer[0])
            except BadItem as error:
                if self._bad_items == "raise":
                    unfit = error
                    break
                passed.append(error)
            self._active.take_first(reader)
        batch = columns(fit) if fit else None
        self._cut_off = None
        for one in passed:
            self._skip(one)
        if batch is not None:
            yield batch
        if unfit is not None:
            raise unfit

    def _skip(self, error: BadItem) -> None:
        self.skipped += 1
        log.warning("skipped a change of table %s: %s", self.table, error)

    def follow(self, *, seconds: float | None = None, pause: float = PAUSE) -> ChangeFollower[R]:
        """Return an iterator over the changes as they come, for `for` and `async for`: endless, or until nothing is new
        after `seconds`.

        `pause` is the longest time, in seconds, that it waits before it asks the service again when nothing is new."""
        return ChangeFollower(self, seconds, pause)

    @property
    def token(self) -> JSON:
        """The stream's place, behind the last change it delivered: JSON for `move_to`, in this process or another."""
        if self._cut_off is not None:
            return self._cut_off
        readers = self._active.readers.values()
        at = min((reader.asked for reader in readers if not reader.ended), default=self._changes.time())
        return Token(self.table, self._changes.stream, tuple(reader.place for reader in readers), int(at)).encode()

    @property
    def shards(self) -> set[str]:
        """The shards that the stream reads now."""
        return set(self._active.readers)

    def take(self, most: int) -> list[Change]:
        """Return up to `most` changes as storage has them, without `make`; fewer if they are large.  An empty list:
        nothing new right now."""
        taken = self._begin_batch(most)
        self._cut_off = None
        return taken

    def _begin_batch(self, most: int) -> list[Change]:
        """Take the next changes.  Until the batch is delivered, `_cut_off` keeps the place at which it began."""
        self._check_process()
        if self._cut_off is not None:
            self.move_to(self._cut_off)
        self._cut_off = self.token
        try:
            return self._active.take(most)
        except Exception:
            self._cut_off = None  # no change was taken
            raise

    def skip(self, most: int) -> int:
        """Pass over up to `most` changes, as if they had been delivered; returns how many there were.  Keeps no more
        than a batch of them in memory."""
        passed = 0
        while passed < most and (some := len(self.take(min(BATCH, most - passed)))):
            passed += some
        return passed

    def move_to(self, position: Start) -> None:
        """Move to the oldest change that is kept, to the latest, to a time (its second included), or to a token's
        place.

        If that fails, the stream stays at its place."""
        self._check_process()
        now = self._changes.time()
        pool = self._executor if self._threads > 1 else None
        active = ActiveShards(
            self._changes, self.table, self._page, self._patience, self._clock, pool, heartbeat=self._automatic
        )
        match position:
            case "trim_horizon":
                active.begin_ready()
            case "latest":
                self._begin_latest(active, now)
            case datetime():
                self._begin_at(active, position, now)
            case Mapping():
                self._resume(active, decode(position, self.table, self._changes.stream), now)
            case _:
                raise bad_start(position)
        self._active, self._cut_off = active, None

    @property
    def trimmed(self) -> list[str]:
        """Shards that were trimmed before they were read to the end: changes in them may be missing."""
        return self._active.trimmed

    def check(self) -> None:
        """Ask every shard for its next page now, so that an error about changes that are gone comes now and not when
        they are read.  The stream's place does not move."""
        self._check_process()
        self._active.ask_round()

    def heartbeat(self) -> None:
        """Ask those shards whose place is known only to an iterator, which expires after 15 minutes.

        These are shards read from "latest" that have delivered nothing yet; no others cost a call.  `next` does this by
        itself, unless `heartbeat=False`."""
        self._check_process()
        self._active.heartbeat()

    def _executor(self) -> Executor:
        """The threads that ask shards at the same time."""
        self._pool = self._pool or ThreadPoolExecutor(self._threads, "tailrace-stream")
        return self._pool

    def close(self) -> None:
        """Release the threads."""
        if self._pool is not None and not self._forked:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Stream[R]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- beginning
    def _begin_latest(self, active: ActiveShards, now: float) -> None:
        for place in latest_places(active.lineage, self._changes, active.ask, now):
            active.begin(place, fresh=True).open()

    def _begin_at(self, active: ActiveShards, moment: datetime, now: float) -> None:
        second = second_of(moment)
        if second > now:
            self._begin_latest(active, now)
        else:
            active.begin_ready(second * 1000)

    def _resume(self, active: ActiveShards, token: Token, now: float) -> None:
        places = active.lineage.resume(token.shards)
        check_age(token, now, active.lineage.shards, self._changes, active.ask)
        for place in places:
            active.begin(place, asked=token.at)
        for place in token.shards:
            if place.shard not in active.readers:
                active.note_trimmed(place.shard)
        active.begin_ready()
