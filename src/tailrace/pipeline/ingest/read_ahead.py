"""Reading ahead: the changes of a source that forgets, taken in while it is still being copied.

A source whose log is kept for a time that nobody can extend, as DynamoDB's streams are for 24 hours, cannot wait for a
long copy.  Its changes are read while the copy goes on, into a topic of their own, and appended to the commit log once
the copy is done.  So each of them comes after every row that a task may have read before it.

    topic <pipeline>--ahead-log, $Reader-<pipeline>--ahead     as a commit log's; removed when all is taken over
    $Reader-<pipeline>, 0                                      ahead{partition: offset}: up to where it is taken over;
                                                               null: nothing is read ahead
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
"""About so much is appended to the commit log at a time."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before a source that is away is asked again."""


class ReadAhead:
    """Keeps the changes of a source while it is copied.  `make` makes a reader, `watch` shows how it is."""

    def __init__(
        self, log: CommitLog, make: Callable[[], Reader], status: Status, watch: Callable[[Reader], object]
    ) -> None:
        self._log, self._make, self._status, self._watch = log, make, status, watch
        self._name = f"{log.pipeline}{READ_AHEAD_SUFFIX}"
        self._over = Event()
        self._failure: Exception | None = None

    @property
    def begun(self) -> bool:
        """Whether changes are kept that the commit log does not have yet."""
        return self._log.item.get("ahead") is not None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A block during which changes are read and kept; raises what went wrong with that."""
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
        """The changes that are kept; from the commit log's position on, if none are."""
        kept = CommitLog(self._log.home, self._name, partitions=self._log.topic.partitions)
        if not self.begun:
            kept.begin(self._log.position)
            self._log.note({"ahead": {str(q): end for q, (_, end) in kept.topic.ends().items()}})
        return kept

    def _read(self, kept: CommitLog) -> None:
        """Until the copy is over; again while the source is away."""
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
        """Append what was kept to the commit log, each change once, and go on from where it ends."""
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
