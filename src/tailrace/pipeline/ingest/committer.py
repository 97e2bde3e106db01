"""The committer: one thread that appends the changes that receivers have read, with the positions behind them.

Each write changes the reader's item under the condition that no other write has, so there is one write at a time.  The
next one takes all changes, of any split, that have come meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Lock, RLock, Thread
from typing import NamedTuple

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Position
from tailrace.adaptors.rows.rows import namespace_of
from tailrace.errors import Fenced
from tailrace.pipeline.ingest.coalesce import Chained
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.runtime.status import SourceStatus, Status

MAX_WAITING = 64
"""The most groups of changes that wait to be committed; then receivers wait, too."""


class _Read(NamedTuple):
    """The changes that a receiver has read, and their split: "" if the source has one log."""

    split: str
    changes: Changes


class Committer:
    """Commits the changes that receivers hand over.  `splits` are those of a source with several logs."""

    def __init__(self, log: CommitLog, status: Status, splits: Sequence[str], *, keep_last: bool = False) -> None:
        self._log, self._status, self._keep_last = log, status, keep_last
        self.queue: Queue[_Read | None] = Queue(MAX_WAITING)
        self.error: Exception | None = None
        self._committing = RLock()
        """Held by the thread that changes the reader's item: in a commit, or in a copy that a receiver has begun."""
        self._counting = Lock()
        self._waiting = Counter[str]()
        """How many groups of changes of each split were handed over and are not committed."""
        known = dict(log.position["splits"]) if splits else {}
        self._splits: dict[str, Position] | None = {s: known.get(s) for s in splits} if splits else None
        self._position: Position = log.position
        self._thread = Thread(target=self._run, name="tailrace-commit", daemon=True)

    # -- for receivers
    def start(self) -> None:
        """Start the committing thread."""
        self._thread.start()

    def put(self, split: str, changes: Changes) -> None:
        """Hand over changes; blocks while MAX_WAITING groups wait."""
        with self._counting:
            self._waiting[split] += 1
        self.queue.put(_Read(split, changes))

    def done(self, split: str = "") -> Position:
        """The position up to which all changes of a split are committed; `KeyError` for a split that has closed."""
        return self._position if self._splits is None else self._splits[split]

    def open_splits(self) -> set[str]:
        """The splits that have a position and have not closed."""
        with self._committing:
            return set(self._splits or ())

    def is_idle(self, split: str | None = None) -> bool:
        """Whether no changes of a split, or of any, wait to be committed."""
        with self._counting:
            return not (self._waiting.total() if split is None else self._waiting[split])

    def wait(self, split: str) -> bool:
        """Wait until all changes of a split that were handed over are committed; False if the committer has failed."""
        while not self.is_idle(split) and self.error is None:
            time.sleep(0.01)
        return self.error is None

    @contextmanager
    def drained(self, split: str) -> Iterator[bool]:
        """A block that begins once all changes of a split are committed, and in which nothing is committed: the caller
        may change the reader's item.  Gets False if the committer has failed."""
        if not self.wait(split):
            yield False
            return
        with self._committing:
            yield self.error is None

    def close(self) -> None:
        """Wait until everything that was handed over is committed, and end the thread."""
        self.queue.put(None)
        self._thread.join()

    # -- its thread
    def _run(self) -> None:
        try:
            while (group := self._group()) is not None:
                with self._committing:
                    self._commit(group)
                with self._counting:
                    self._waiting.subtract(read.split for read in group)
        except Exception as error:
            self.error = error
            while self.queue.get() is not None:  # so that a receiver that waits in `put` goes on and sees the error
                pass

    def _group(self) -> list[_Read] | None:
        """All groups of changes that wait; blocks until there is one.  None at the end."""
        group = [self.queue.get()]
        while group[-1] is not None:
            try:
                group.append(self.queue.get_nowait())
            except Empty:
                break
        if group[-1] is None:
            self.queue.put(None)
        return [read for read in group if read is not None] or None

    def _commit(self, group: list[_Read]) -> None:
        rows = Chained([read.changes.rows for read in group])
        splits, position = self._after(group)
        if not self._log.take_in(rows, position, keep_last=self._keep_last):
            raise Fenced(f"another run of {self._log.pipeline!r} reads the source now; this one must stop")
        self._position, self._splits = position, splits
        self._show(group[-1].changes.committed_at, rows)

    def _after(self, group: list[_Read]) -> tuple[dict[str, Position] | None, Position]:
        """The positions of the splits, and the whole position, behind a group."""
        if self._splits is None:
            return None, group[-1].changes.position
        splits = dict(self._splits)
        for read in group:
            splits[read.split] = read.changes.position
            splits |= {name: None for name in read.changes.opened if name not in splits}
            if read.changes.closed:
                del splits[read.split]
        return splits, {**self._position, "splits": splits}

    def _show(self, committed_at: int, rows: Sequence[pa.RecordBatch]) -> None:
        counts = Counter[str]()
        for batch in rows:
            counts[namespace_of(batch)] += batch.num_rows
        with self._status.lock:
            self._status.error = ""
            several = self._splits is not None
            self._status.position = f"{len(self._splits or ())} splits" if several else str(self._position)
            if committed_at:
                self._status.delay = max(0.0, time.time() - committed_at / 1000)
            for name, count in counts.items():
                source = self._status.sources.setdefault(name, SourceStatus("sync"))
                source.phase = "sync" if source.phase == "complete" else source.phase
                source.changes += count
                self._status.records += count
