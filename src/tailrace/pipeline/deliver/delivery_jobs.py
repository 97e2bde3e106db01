"""Delivery jobs: run a writer's batches as Spark jobs, or on the driver for a branch that needs a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.adaptors.contract import Who
from tailrace.pipeline.deliver.batch import MAX_COMMANDS_PER_TASK, StagedBatch, size
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, Outcome, deliver, printing
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import Span, redeliver
from tailrace.pipeline.functions.frames import has_frames
from tailrace.pipeline.runtime.engine import SparkEngine
from tailrace.pipeline.runtime.spark_job import LOSSES, JobLost
from tailrace.pipeline.runtime.trouble import Trouble, worst

MAX_RECORDS_PER_TASK = 20_000
"""The most records of a batch that is delivered by one task."""


class DeliveryJobs:
    """Runs the jobs of one branch, and counts those that were lost in a row."""

    def __init__(self, engine: SparkEngine, branch: Branch) -> None:
        self._engine, self._branch = engine, branch
        self._losses = 0

    def stage(self, ranges: Sequence[DeliveryRange], wide: int) -> StagedBatch:
        """Have tasks stage these ranges, and wait for them; `wide` is the number of partitions that have a command."""
        try:
            outcomes = self._staged(ranges, wide)
        except JobLost as error:
            return StagedBatch(ranges, trouble=self._lost(error))
        return StagedBatch(ranges, outcomes, worst([o.trouble for o in outcomes if o.trouble is not None]))

    def is_one_task(self, ranges: Sequence[DeliveryRange]) -> bool:
        """Whether these ranges are few enough records for one task."""
        return size(ranges) <= MAX_RECORDS_PER_TASK

    def _staged(self, ranges: Sequence[DeliveryRange], wide: int) -> list[Outcome]:
        past = MAX_COMMANDS_PER_TASK if len(ranges) == wide else 0  # all partitions must pass a command together
        if has_frames(self._branch.functions):
            return [deliver(self._branch, list(ranges), past)]
        shares = [list(ranges)]
        if not self.is_one_task(ranges):
            many = min(self._engine.parallel, len(ranges))
            shares = [list(ranges[n::many]) for n in range(many)]
        return self._job(deliver, [(self._branch, share, past) for share in shares])

    def redeliver(self, spans: list[Span], who: Who, marks: Mapping[int, Mark], *, on_driver: bool) -> Outcome:
        """Redeliver a failed batch for some seconds, in one task, or on the driver if the branch or sink needs that."""
        work = (self._branch, [span for span in spans if span], who, marks)
        try:
            if has_frames(self._branch.functions) or on_driver:
                return redeliver(*work)
            (outcome,) = self._job(redeliver, [work])
            return outcome
        except JobLost as error:
            return Outcome(trouble=self._lost(error), left=spans)

    def _job(self, function: Callable[..., Outcome], work: Sequence[tuple[Any, ...]]) -> list[Outcome]:
        found = self._engine.tasks(printing, [(function, *some) for some in work])
        self._losses = 0
        return found

    def _lost(self, error: JobLost) -> Trouble:
        """The trouble for a lost job: "away", so that it is run again, since a worker may have died; "setup" after
        LOSSES in a row."""
        self._losses += 1
        return Trouble(str(error), "away" if self._losses < LOSSES else "setup")
