"""Outlets: each writer at its own pace, with Spark jobs of its own.

Whenever the log has grown a job delivers what is new.  The truth about progress is the offset log, and where a sink
keeps offsets with its data, the sink.  A batch that fails is delivered again one message at a time; what still fails
is a matter of the branch's policy."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from threading import Event, Thread

from pyspark.sql import SparkSession

from tailrace.adaptors.contract import Who
from tailrace.errors import TailraceError
from tailrace.pipeline import offsets
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.deadletters import Trouble
from tailrace.pipeline.delivery import Branch, Outcome, Range, deliver, deliver_singly
from tailrace.pipeline.functions.frames import has_frames
from tailrace.pipeline.functions.namespaces import destination
from tailrace.pipeline.offsets import Mark, restored, stored
from tailrace.pipeline.status import Sink, Status

FEW = 20_000
"""Up to so many records a batch is one task."""

MOST = 500_000
"""At most so many records of a partition go into one batch."""


class Stuck(TailraceError):
    """A writer has stopped at a message; the operator's help is needed."""


class Outlet:
    """One writer of a run."""

    def __init__(
        self,
        spark: SparkSession,
        log: CommitLog,
        branch: Branch,
        status: Status,
        stop: Event,
        *,
        parallel: int,
        flush: float,
    ) -> None:
        self._spark, self._log, self.branch, self._stop = spark, log, branch, stop
        self._parallel, self._flush, self._flushed = parallel, flush, 0.0
        self.shown = status.sinks.setdefault(branch.name, Sink())
        self._store = log.home.store
        self._writer = branch.writer()
        self._waiting: dict[int, tuple[str, str]] = {}
        self._grown = Event()
        self.epoch, self.marks = self._take()
        self.problem: Trouble | None = None

    def _take(self) -> tuple[int, dict[int, Mark]]:
        """Where to go on: what the sink itself kept, unless an operator has said otherwise since."""
        names = (self.branch.pipeline, self.branch.name)
        self._writer.check()
        overridden = self._store.run(offsets.overridden(*names))
        epoch, marks = self._store.run(offsets.take(*names, self._log.topic.partitions))
        kept = self._writer.claim(Who(*names, epoch))
        if kept is not None:
            for q, mark in restored(kept["offsets"]).items():
                if q not in overridden and mark.low >= marks[q].low:
                    marks[q] = mark
        return epoch, marks

    # -- its thread
    def start(self) -> None:
        """Begin to follow the log."""
        self._notifier = self._log.topic.on_append(lambda ends: self._grown.set())
        self._thread = Thread(target=self._run, name=f"tailrace-{self.branch.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        context = self._spark.sparkContext
        context.setJobGroup(f"{self.branch.pipeline}/{self.branch.name}", f"tailrace: into {self.branch.name}")
        self.shown.state = "running"
        try:
            while not self._stop.is_set() and self.problem is None:
                self.catch_up()
                self._grown.wait(1.0)
                self._grown.clear()
        except Exception as error:
            self.problem = Trouble(f"{type(error).__name__}: {error}")
            self.shown.state, self.shown.error = "stopped", f"the writer {self.branch.name!r}: {error}"

    @property
    def working(self) -> bool:
        """Whether it goes on delivering."""
        return self._thread.is_alive() and self.problem is None

    def finish(self, seconds: float) -> None:
        """Let the batch under way end, for so long; store the offsets, and go."""
        self._grown.set()
        self._notifier.close()
        self._thread.join(seconds)
        self.save(force=True)
        self._writer.close()
        if self.problem is None:
            self.shown.state = "ended"

    # -- batches
    def catch_up(self) -> None:
        """Deliver everything that is in the log now."""
        while not self._stop.is_set() and (ranges := self._ranges()):
            try:
                self._deliver(ranges)
            except Stuck as stuck:
                self.shown.state, self.shown.error = "stopped", str(stuck)
                break
            self.save()
        self.save(force=True)

    def _ranges(self) -> list[Range]:
        ends = {q: end for q, (_, end) in self._log.topic.ends().items()}
        self.shown.lag = sum(ends[q] - mark.resume for q, mark in self.marks.items())
        return [
            Range(q, mark.resume, min(ends[q], mark.resume + MOST), mark)
            for q, mark in self.marks.items()
            if mark.resume < ends[q] and q not in self._waiting
        ]

    def _deliver(self, ranges: Sequence[Range]) -> None:
        outcomes = self._tasks(ranges)
        troubles = [o.trouble for o in outcomes if o.trouble is not None]
        if not troubles:
            self._finish(outcomes)
            return
        self._writer.discard([o.staged for o in outcomes if o.staged is not None])
        if any(t.passing for t in troubles):
            self._wait(troubles[0])
        else:
            self._singly(ranges)

    def _tasks(self, ranges: Sequence[Range]) -> list[Outcome]:
        if has_frames(self.branch.functions):
            return [deliver(self.branch, list(ranges), grouped=True)]
        shares = [list(ranges)]
        if sum(r.end - r.start for r in ranges) > FEW:
            shares = [list(ranges[n :: self._parallel]) for n in range(min(self._parallel, len(ranges)))]
        work = [(self.branch, share) for share in shares]
        found: list[Outcome] = (
            self._spark.sparkContext.parallelize(work, len(work)).map(lambda some: deliver(*some)).collect()
        )
        return found

    def _finish(self, outcomes: Sequence[Outcome]) -> None:
        after = {q: mark.copy() for q, mark in self.marks.items()}
        for outcome in outcomes:
            for q, reached in outcome.reached.items():
                after[q].acknowledge(reached - 1)
        staged = [o.staged for o in outcomes if o.staged is not None and o.staged.rows]
        if staged:
            self._writer.finish(staged, self._who(), stored(after))
        self.marks = after
        self._account(outcomes)
        for outcome in outcomes:
            self._waiting |= outcome.commands
        self._commands()

    def _commands(self) -> None:
        """Once every partition stands before the command, all rows before it are in: carry it out."""
        if not self._waiting or len(self._waiting) < len(self.marks):
            return
        namespace, command = next(iter(self._waiting.values()))
        if re.search(self.branch.namespace, namespace):
            self._writer.command(destination(self.branch.functions, namespace), command)
        for q in self._waiting:
            self.marks[q].acknowledge(self.marks[q].resume)
        self._waiting = {}

    def _singly(self, ranges: Sequence[Range]) -> None:
        """The batch again, one message at a time, in one task."""
        self.shown.state = "one at a time"
        work = [(self.branch, list(ranges), self._who(), self.marks)]
        if has_frames(self.branch.functions):
            outcome = deliver_singly(*work[0])
        else:
            outcome = self._spark.sparkContext.parallelize(work, 1).map(lambda some: deliver_singly(*some)).collect()[0]
        for q, reached in outcome.reached.items():
            self.marks[q].acknowledge(reached - 1)
        self._account([outcome])
        self._waiting |= outcome.commands
        self.shown.skipped += len(outcome.skipped)
        if outcome.trouble is not None and outcome.trouble.passing:
            self._wait(outcome.trouble)
        elif outcome.trouble is not None:
            self.problem = outcome.trouble
            raise Stuck(_told(self.branch, outcome.trouble))
        self._commands()
        self.shown.state = "running"

    def _wait(self, trouble: Trouble) -> None:
        """The sink cannot be reached: nothing is lost by waiting."""
        self.shown.state, self.shown.error = "waiting", trouble.error
        self._stop.wait(1.0)

    def _who(self) -> Who:
        return Who(self.branch.pipeline, self.branch.name, self.epoch)

    def _account(self, outcomes: Sequence[Outcome]) -> None:
        self.shown.rows += sum(o.rows for o in outcomes)
        self.shown.filtered += sum(o.filtered for o in outcomes)
        self.shown.offset = sum(mark.low + 1 for mark in self.marks.values()) - 1
        self.shown.lag = sum(end - self.marks[q].resume for q, (_, end) in self._log.topic.ends().items())
        latest = max((o.latest for o in outcomes), default=0)
        self.shown.delay = max(0.0, time.time() - latest / 1000) if latest else 0.0
        self.shown.state, self.shown.error = "running", ""

    def save(self, force: bool = False) -> None:
        """Store the offsets, at most once a second."""
        now = time.monotonic()
        if force or now - self._flushed >= self._flush:
            self._store.run(offsets.save(self.branch.pipeline, self.branch.name, self.epoch, self.marks))
            self._flushed = now


def _told(branch: Branch, trouble: Trouble) -> str:
    where = f"message {trouble.partition}:{trouble.offset} ({trouble.namespace}, id {trouble.id})"
    return (
        f"the writer {branch.name!r} stopped at {where}: {trouble.error}; mend the cause and run again, or "
        f"pass it with `tailrace offset mark {branch.pipeline} {branch.name} {trouble.partition}:{trouble.offset}`"
    )
