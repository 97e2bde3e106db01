"""Reading ahead: stores the changes of a source with a short-lived log while its tables are still being copied.

Some sources keep their log for a fixed time, as DynamoDB's streams do for 24 hours, and a copy may take longer.  So a
thread reads their changes during the copy into a topic of its own, and the driver appends them to the commit log once
the copy is done.  So each change comes after every row that a task may have read before it.

Only documents' changes are read ahead, no commands: they are taken over partition by partition, and a command must come
into all partitions at one moment.  A reader leaves what needs a command, such as a table made again, to `follow`.

    topic <pipeline>--ahead-log      as a commit log; deleted when all of it is taken over
    $Reader-<pipeline>--ahead, 0     as a commit log's
    $Reader-<pipeline>, 0            ahead{partition: offset}: how far each partition is taken over; null: nothing is
                                     read ahead
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Event, Thread

import pyarrow as pa

from tailrace.adaptors.contract import Position, Reader
from tailrace.adaptors.rows.rows import namespace_of
from tailrace.coordination.failure import cause_of
from tailrace.errors import Fenced, UnknownTopic
from tailrace.log.write.source_append import log_name
from tailrace.pipeline.define.definition import READ_AHEAD_SUFFIX
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.reader_state import Changed
from tailrace.pipeline.runtime.status import Status

_log = logging.getLogger("tailrace")
MAX_TAKEN_OVER_BYTES = 32 * 1024 * 1024
"""The approximate size of one append when changes are taken over into the commit log."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before the reading thread retries a source that is away."""


class ReadAhead:
    """Stores the changes of a source while it is copied.  `make` makes a reader; `watch` is called with it, to show its
    health."""

    def __init__(
        self, log: CommitLog, make: Callable[[], Reader], status: Status, watch: Callable[[Reader], object]
    ) -> None:
        self._log, self._make, self._status, self._watch = log, make, status, watch
        self._name = f"{log.pipeline}{READ_AHEAD_SUFFIX}"
        self._over = Event()
        self._failure: Exception | None = None

    @property
    def begun(self) -> bool:
        """Whether changes were read ahead and are not taken over yet."""
        return self._log.item.get("ahead") is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block during which a thread reads and stores changes; raises the thread's error at its end."""
        kept = self._opened()
        thread = Thread(target=self._read, args=(kept,), name="tailrace-ahead", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _opened(self) -> CommitLog:
        """Open the log of changes; if none were read ahead, it begins at the commit log's position."""
        kept = CommitLog(self._log.home, self._name, partitions=self._log.topic.partitions)
        if not self.begun:
            kept.begin(self._log.position)
            self._log.note({"ahead": {str(q): end for q, (_, end) in kept.topic.ends().items()}})
        return kept

    def _read(self, kept: CommitLog) -> None:
        """Read changes until the copy is over, and retry while the source is away."""
        while not self._over.is_set():
            try:
                self._follow(kept)
            except Exception as error:
                self._status.error = str(error)
                if cause_of(error) != "away":
                    _log.warning("changes cannot be read while the copy goes on: %s", error)
                    self._failure = error
                    return
                self._over.wait(RETRY_PAUSE_SECONDS)
                with suppress(Exception):
                    kept.refresh()

    def _follow(self, kept: CommitLog) -> None:
        with closing(self._make()) as reader:
            self._watch(reader)
            for changes in reader.follow_ahead(kept.position):
                if changes.rows or changes.position != kept.position:
                    if not kept.take_in(changes.rows, changes.position):
                        raise Fenced(f"another run of {self._log.pipeline!r} reads the source now; this one must stop")
                    self._status.error = ""
                if self._over.is_set():
                    return

    def take_over(self) -> None:
        """Append the stored changes to the commit log, each once, with the position behind them, and delete their
        topic."""
        kept = CommitLog(self._log.home, self._name, partitions=self._log.topic.partitions)
        for partition in range(kept.topic.partitions):
            self._take_partition(kept, partition)
        self._take([], {"ahead": None}, kept.position)
        with suppress(UnknownTopic):
            self._log.home.delete_topic(log_name(self._name))

    def _take_partition(self, kept: CommitLog, partition: int) -> None:
        rows: list[pa.RecordBatch] = []
        end = start = int(self._log.item["ahead"].get(str(partition), 0))
        for fetched in kept.topic.fetch(partition, start):
            rows.append(fetched.data)
            end = fetched.end
            if sum(batch.nbytes for batch in rows) >= MAX_TAKEN_OVER_BYTES:
                self._take(rows, self._marks(partition, end))
                rows = []
        if rows:
            self._take(rows, self._marks(partition, end))

    def _marks(self, partition: int, end: int) -> Changed:
        return {"ahead": {**self._log.item["ahead"], str(partition): end}}

    def _take(self, rows: list[pa.RecordBatch], marks: Changed, position: Position = None) -> None:
        if not self._log.take_in(rows, self._log.position if position is None else position, noted=marks):
            raise Fenced(f"another run of {self._log.pipeline!r} reads the source now; this one must stop")
        for batch in rows:
            self._status.source(namespace_of(batch)).changes += batch.num_rows
            self._status.records += batch.num_rows
