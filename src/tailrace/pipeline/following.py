"""Following: one receiver beside the driver, holding its connection to a serial source open.

One thread decodes, another commits what has come meanwhile, so a slow disk makes batches larger, not the delay longer.
The source is told only what the commit log has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from threading import Event, Thread

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Position, Reader
from tailrace.adaptors.rows import namespace_of
from tailrace.errors import Fenced
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.status import Source, Status

AHEAD = 64
"""How many groups of changes may wait to be committed; a source that is faster waits."""


class Following:
    """Follows a source from the commit log's position until told to stop, or with `once` until it has caught up."""

    def __init__(
        self, reader: Reader, log: CommitLog, status: Status, stop: Event, copy: Callable[[Changes], None]
    ) -> None:
        self._reader, self._log, self._status, self._stop, self._copy = reader, log, status, stop, copy
        self._queue: Queue[Changes | None] = Queue(AHEAD)
        self._done: Position = log.position
        self._error: Exception | None = None

    def run(self, once: bool = False) -> None:
        """Blocks until it is over; raises what went wrong."""
        committer = Thread(target=self._commit_all, name="tailrace-commit", daemon=True)
        committer.start()
        try:
            self._follow(once)
        finally:
            self._queue.put(None)
            committer.join()
        if self._error is not None:
            raise self._error
        self._reader.acknowledge(self._done)

    def _follow(self, once: bool) -> None:
        state = {name: dict(phase) for name, phase in self._log.phases.items()}
        for changes in self._reader.follow(self._log.position, list(state), state):
            if self._stop.is_set() or self._error is not None:
                return
            if changes.appeared or changes.altered:
                if not self._drained():
                    return
                self._copy(changes)
            if changes.rows or changes.position != self._done:
                self._queue.put(changes)
            elif once and self._queue.empty():
                return
            if once and changes.caught_up:
                return
            self._reader.acknowledge(self._done)

    def _drained(self) -> bool:
        """Wait until all that was handed over is committed, which moves on what a copy moves on, too; False: it never
        will be."""
        while self._queue.unfinished_tasks and self._error is None:
            time.sleep(0.01)
        return self._error is None

    # -- the committing thread
    def _commit_all(self) -> None:
        try:
            while (group := self._group()) is not None:
                self._commit(group)
                for _ in group:
                    self._queue.task_done()
        except Exception as error:
            self._error = error
            while self._queue.get() is not None:  # who waits for room must come to know of it
                pass

    def _group(self) -> list[Changes] | None:
        """Everything that waits now, at least one; None at the end."""
        group = [self._queue.get()]
        while group[-1] is not None:
            try:
                group.append(self._queue.get_nowait())
            except Empty:
                break
        if group[-1] is None:
            self._queue.put(None)
        return [changes for changes in group if changes is not None] or None

    def _commit(self, group: list[Changes]) -> None:
        rows = joined([batch for changes in group for batch in changes.rows])
        if not self._log.take_in(rows, group[-1].position):
            raise Fenced(f"another run of {self._log.pipeline!r} reads the source now; this one must stop")
        self._done = group[-1].position
        with self._status.lock:
            self._status.error = ""
            self._status.position = str(self._done)
            if group[-1].committed_at:
                self._status.delay = max(0.0, time.time() - group[-1].committed_at / 1000)
            for batch in rows:
                self._status.sources.setdefault(namespace_of(batch), Source("sync")).changes += batch.num_rows
                self._status.records += batch.num_rows


def joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Neighbours of the same schema as one batch: many small transactions make few batches."""
    out: list[pa.RecordBatch] = []
    run: list[pa.RecordBatch] = []
    for batch in batches:
        if run and not run[0].schema.equals(batch.schema, check_metadata=True):
            out.append(_one(run))
            run = []
        run.append(batch)
    return [*out, _one(run)] if run else out


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
