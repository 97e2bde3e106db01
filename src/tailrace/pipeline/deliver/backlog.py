"""The backlog of a writer: which ranges of the commit log are pending, and how many records go into one batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from tailrace.errors import StorageError
from tailrace.log.format.head import Head
from tailrace.pipeline.deliver.batch import FIRST_RECORDS, GROWTH, MAX_RECORDS_PER_PARTITION, pending, until
from tailrace.pipeline.deliver.delivery import DeliveryRange
from tailrace.pipeline.deliver.delivery_jobs import DeliveryJobs
from tailrace.pipeline.deliver.failed_batch import FailedBatch
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.standing_commands import StandingCommands
from tailrace.pipeline.ingest.commit_log import CommitLog


class Backlog:
    """Cuts batches from the commit log.  A run's first batch is small, and each staged batch lets the next be
    larger."""

    def __init__(self, log: CommitLog, jobs: DeliveryJobs) -> None:
        self._log, self._jobs, self._most = log, jobs, FIRST_RECORDS

    def head(self) -> Head:
        """The commit log's head as stored."""
        return self._log.home.store.run(self._log.topic.log.head())

    def grow(self) -> None:
        """Let the next batch be larger."""
        self._most = min(GROWTH * self._most, MAX_RECORDS_PER_PARTITION)

    def next(
        self, head: Head, marks: Mapping[int, Mark], failed: FailedBatch, standing: StandingCommands
    ) -> list[DeliveryRange]:
        """The ranges of the next batch; after a failed batch, up to the end of that.  Partitions that stand before a
        command have none."""
        ends, standing.wide = until(head, {q: mark.resume for q, mark in marks.items()})
        ends = failed.pending(marks, standing.at) or ends
        return pending(marks, {q: end for q, end in ends.items() if q not in standing.at}, self._most)

    def further(self, after: Mapping[int, Mark], standing: StandingCommands) -> list[DeliveryRange]:
        """The ranges of the batch behind one that ends at these marks, if they are more than one task; else none."""
        with suppress(StorageError):
            head = self.head()
            if head.partitions == len(after):
                ends, wide = until(head, {q: mark.resume for q, mark in after.items()})
                ranges = pending(after, ends, self._most)
                if not self._jobs.is_one_task(ranges):
                    standing.wide = wide
                    return ranges
        return []
