"""Outlets: each writer at its own pace, with Spark jobs of its own.

Whenever the log has grown a job delivers what is new.  The truth about progress is the offset log, and where a sink
keeps offsets with its data, the sink.  A batch that fails is delivered again in ever smaller parts (see failed_batch,
redelivery); what still fails alone is a matter of the branch's policy.

Where much is pending, as in a copy, tasks stage the next batch while the sink finishes the one before.  Batches are
finished one after the other: what was staged ahead of one that fails is thrown away.

A batch without an answer may have been finished, or may yet be.  So after any error the outlet begins again, under a
higher epoch: no batch of the epoch before can be finished any more, and the sink says which were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread

from tailrace.adaptors.contract import Who
from tailrace.coordination.failure import cause_of
from tailrace.errors import StorageError
from tailrace.pipeline.deliver.backlog import Backlog
from tailrace.pipeline.deliver.batch import StagedBatch, size
from tailrace.pipeline.deliver.claim import SinkClaim
from tailrace.pipeline.deliver.command_delivery import carry_out
from tailrace.pipeline.deliver.command_marks import left_behind
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, Outcome
from tailrace.pipeline.deliver.delivery_jobs import DeliveryJobs
from tailrace.pipeline.deliver.failed_batch import FailedBatch, failed_batch
from tailrace.pipeline.deliver.offsets import Mark, is_untouched, stored
from tailrace.pipeline.deliver.pacing import Pacing
from tailrace.pipeline.deliver.saved_offsets import SavedOffsets
from tailrace.pipeline.deliver.sink_display import SinkDisplay, why_stopped
from tailrace.pipeline.deliver.standing_commands import StandingCommands
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.runtime.background import beside
from tailrace.pipeline.runtime.engine import SparkEngine
from tailrace.pipeline.runtime.status import SinkStatus, Status
from tailrace.pipeline.runtime.trouble import Stuck, Trouble, trouble_of

LOOK_SECONDS = 0.25
"""After so long the outlet looks again at what it holds back."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before something that is away is asked again."""


class Outlet:
    """One writer of a run."""

    def __init__(
        self, engine: SparkEngine, log: CommitLog, branch: Branch, status: Status, stop: Event, *, flush: float
    ) -> None:
        self._engine, self._log, self.branch, self._stop = engine, log, branch, stop
        self._display = SinkDisplay(status.sinks.setdefault(branch.name, SinkStatus()), log.topic, branch)
        self._jobs, self._pacing = DeliveryJobs(engine, branch), Pacing()
        self._backlog = Backlog(log, self._jobs)
        self._saved = SavedOffsets(log.home.store, branch.pipeline, branch.name, flush)
        self._writer = branch.writer()
        self._claim = SinkClaim(self._writer, (branch.pipeline, branch.name))
        self._grown = Event()
        self.marks: dict[int, Mark] = {}
        self.problem: Trouble | None = None
        self._keeps: bool | None = None
        """Whether the sink stores offsets with its data; None: not known yet."""

    @property
    def shown(self) -> SinkStatus:
        """What people see of it."""
        return self._display.shown

    def check(self, known: bool = False) -> StorageError | None:
        """Raise what is wrong with the sink.  If the sink is away and the pipeline is `known`, the error is returned
        instead."""
        try:
            self._claim.check()
        except StorageError as error:
            if cause_of(error) != "away" or not known or self.untouched_in_the_log:
                raise
            self._display.waiting(str(error))
            return error
        return None

    @property
    def untouched_in_the_log(self) -> bool:
        """Whether the offset log has nothing of this writer: then only its sink can say where it starts."""
        return is_untouched(self._saved.load(self._log.topic.partitions)[1])

    def begin(self) -> bool:
        """Fence earlier runs, so that none can finish anything more, and find out how far they came.

        False: the sink is away; the outlet begins by itself once it is back."""
        try:
            self._begin(None)
        except StorageError as error:
            if cause_of(error) != "away" or self.untouched_in_the_log:
                raise
            self._display.waiting(str(error))
            self._start_from(*self._saved.load(self._log.topic.partitions))
            self._doubtful = True
            return False
        return True

    def _begin(self, held: int | None) -> None:
        """Begin, or begin again after an error."""
        self._claim.check()
        self._start_from(*self._claim.take(self._log.topic, held, self._saved.finished))

    def _start_from(self, epoch: int, marks: dict[int, Mark]) -> None:
        self.epoch, self.marks = epoch, marks
        self._standing = StandingCommands(len(marks))
        self._failed_batch = FailedBatch()
        self._doubtful = False
        self._display.place(marks)

    def look(self) -> None:
        """Show how much is pending, and since when.  Another thread calls it: this outlet's own may be stuck."""
        self._display.look(self.marks)

    @property
    def untouched(self) -> bool:
        """Whether it has never acknowledged anything, and no operator has said that it should start again."""
        return is_untouched(self.marks)

    def start_at(self, starts: Mapping[int, int]) -> None:
        """Pass everything before these offsets."""
        for q, at in starts.items():
            self.marks[q].acknowledge(at - 1)
        self.save(force=True)

    # -- its thread
    def start(self) -> None:
        """Begin to follow the log."""
        self._notifier = self._log.topic.on_append(lambda ends: self._grown.set())
        self._thread = Thread(target=self._run, name=f"tailrace-{self.branch.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        name = f"{self.branch.pipeline}/{self.branch.name}"
        try:
            self._engine.context.setJobGroup(name, f"tailrace: into {self.branch.name}")
        except Exception as error:
            self._troubled(error)
            return
        if not self._doubtful:
            self._display.running()
        while not self._stop.is_set() and self.problem is None:
            self._try(self._once)
        if self._pacing.held and self.problem is None:
            self._try(self._let_go)
        while not self._stop.wait(RETRY_PAUSE_SECONDS):
            self._display.fall_behind(self.marks)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Stuck as stuck:
            self._display.stopped(str(stuck))
        except Exception as error:
            self._troubled(error)

    def _once(self) -> None:
        if self._doubtful:
            self._again()
        self.catch_up()
        if self._display.is_waiting() and not self._doubtful:  # what was away is back, and nothing is pending
            self._display.running()
        if self._pacing.held:
            self._stop.wait(LOOK_SECONDS)
            return
        self._grown.wait(1.0)
        self._grown.clear()

    def _again(self) -> None:
        failed = self._failed_batch
        self._begin(self.epoch if self._claim.taken else None)
        self._failed_batch = failed

    def _troubled(self, error: Exception) -> None:
        """The home, the log or the sink failed outside of a batch."""
        self._doubtful = True
        if cause_of(error) == "away":
            self._wait(trouble_of(error))
            return
        self.problem = trouble_of(error)
        self._display.stopped(why_stopped(self.branch, self.problem))

    @property
    def working(self) -> bool:
        """Whether it goes on delivering."""
        return self._thread.is_alive() and self.problem is None

    def finish(self, seconds: float) -> None:
        """Let the batch under way end, for so long; store the offsets, and go."""
        self._grown.set()
        self._notifier.close()
        self._thread.join(seconds)
        try:
            self.save(force=True)
        finally:
            self._writer.close()
            if self.problem is None:
                self.shown.state = "ended"

    # -- batches
    def catch_up(self) -> None:
        """Deliver everything that is in the log now; less if something is in the way, or a little is held back."""
        self._pacing.held = False
        while not (self._stop.is_set() or self._doubtful) and (ranges := self._ranges()):
            if self._holds(ranges):
                self._pacing.held = True
                self._display.collecting()
                self.save()
                return
            self._display.collected()
            if self._failed_batch:
                self._redeliver(ranges)
            else:
                self._bulk(ranges)
            if not self._doubtful:
                self._commands()
            self.save()
        self._display.collected()
        self.save(force=True)
        if self._standing and not (self._stop.is_set() or self._doubtful):
            raise left_behind(self.branch, self._standing.at, next(iter(self._standing.at.values()))[0])

    def hurry(self) -> None:
        """Hold nothing back any more: the run is to end when all is delivered."""
        self._pacing.hurry()

    def _holds(self, ranges: Sequence[DeliveryRange]) -> bool:
        """Whether to hold these few records back for now, so that the sink gets fewer and larger batches."""
        if self._failed_batch or self._standing or not self._jobs.is_one_task(ranges):
            return False
        return self._pacing.holds(self._writer.every)

    def _let_go(self) -> None:
        """At the end of a run: deliver what was held back.  If that fails, the next run delivers it."""
        if not self._doubtful and (ranges := self._ranges()):
            self._bulk(ranges)
            self.save(force=True)

    def _ranges(self) -> list[DeliveryRange]:
        """What is pending; where a batch failed, up to its end."""
        head = self._backlog.head()
        if head.partitions > len(self.marks):  # the log has grown: go on with marks for all of it
            self.save(force=True)
            self._again()
        self._display.lag(self.marks, head.next)
        return self._backlog.next(head, self.marks, self._failed_batch, self._standing)

    def _bulk(self, ranges: Sequence[DeliveryRange]) -> None:
        """A batch, and those that could be staged meanwhile."""
        batch: StagedBatch | None = self._staged(ranges)
        while batch is not None:
            batch = self._settled(batch)
            self.save()

    def _staged(self, ranges: Sequence[DeliveryRange]) -> StagedBatch:
        batch = self._jobs.stage(ranges, self._standing.wide)
        if batch.outcomes:
            self._backlog.grow()
        return batch

    def _settled(self, batch: StagedBatch) -> StagedBatch | None:
        """Finish a batch; where much more is pending, stage the next one meanwhile, and give that."""
        if batch.trouble is not None:
            self._failed(batch, batch.trouble)
            return None
        if not self._pass_commands(batch):
            return None
        after, ahead = batch.after(self.marks), None
        if further := self._further(batch, after):
            finishing = beside(self.branch.name, self._finish, batch, after)
            with suppress(Exception):  # it is met again once this one is finished
                ahead = self._staged(further)
            trouble = finishing.result()
        else:
            trouble = self._finish(batch, after)
        if trouble is not None:
            self._discard(ahead)
            self._failed(batch, trouble)
            return None
        self.marks = after
        self._account(batch.outcomes)
        return ahead

    def _pass_commands(self, batch: StagedBatch) -> bool:
        """Finish the rows before commands that all tasks have passed, carry the commands out, and leave the rows after
        them in the batch; False if one of these steps failed."""
        while (step := batch.step()) is not None:
            if self._stop.is_set():
                self._discard(batch)
                return False
            after = step.after(self.marks)
            if (trouble := self._finish(step, after)) is not None:
                self._failed(batch, trouble)
                return False
            batch.without_step()
            self.marks = after
            self._account(step.outcomes)
            try:
                self._commands()
            except Exception:
                self._discard(batch)
                raise
            self.save()
        self._discard(batch.leave_ahead())
        return True

    def _further(self, batch: StagedBatch, after: Mapping[int, Mark]) -> list[DeliveryRange]:
        """What comes next, if it is much and nothing stands before it."""
        if self._stop.is_set() or self._standing or any(outcome.commands for outcome in batch.outcomes):
            return []
        return self._backlog.further(after, self._standing)

    def _failed(self, batch: StagedBatch, trouble: Trouble) -> None:
        self._discard(batch)
        if trouble.cause == "data":
            self._failed_batch = failed_batch(batch.ranges, trouble)
            self._display.search(trouble, [], size(batch.ranges))
        else:
            self._face(trouble)

    def _discard(self, batch: StagedBatch | None) -> None:
        with suppress(Exception):  # a sink that cannot be reached keeps it for now, and tidies up later
            if batch is not None and batch.unfinished:
                self._writer.discard(batch.unfinished)

    def _finish(self, batch: StagedBatch, after: Mapping[int, Mark]) -> Trouble | None:
        """Make a batch visible, with its offsets."""
        if batch.staged:
            try:
                self._writer.finish(batch.staged, self._who(), stored(after))
                if self._keeps is None:
                    self._keeps = self._writer.restore(self.branch.pipeline, self.branch.name) is not None
            except Exception as error:
                self._doubtful = True
                return trouble_of(error)
            self._pacing.finished()
            if self._keeps:
                self._saved.saw(after)
        return None

    def _redeliver(self, ranges: Sequence[DeliveryRange]) -> None:
        """Go on with a batch that failed, for a while."""
        failed = self._failed_batch
        parts = failed.parts(ranges, self.marks)
        outcome = self._jobs.redeliver(parts, self._who(), self.marks, on_driver=self._writer.on_driver)
        failed.spans = outcome.left
        for q, reached in outcome.reached.items():
            self.marks[q].acknowledge(reached - 1)
        self._account([outcome])
        if outcome.trouble is not None:
            self._face(outcome.trouble)
        if left := sum(map(size, failed.spans)):
            self._display.search(failed.cause, failed.spans, left)

    def _face(self, trouble: Trouble) -> None:
        """Wait, or stop.  Either way it is not known what the sink has."""
        self._doubtful = True
        if trouble.cause == "away":
            self._wait(trouble)
            return
        self.save(force=True)
        self.problem = trouble
        raise Stuck(why_stopped(self.branch, trouble))

    def _wait(self, trouble: Trouble) -> None:
        """Something cannot be reached: nothing is lost by waiting."""
        self._display.waiting(trouble.error)
        self._display.fall_behind(self.marks)
        self._stop.wait(RETRY_PAUSE_SECONDS)

    def _commands(self) -> None:
        """Carry out the command that every partition stands before."""
        if (due := self._standing.due()) is not None:
            told = carry_out(self.branch, self._writer, *due, self._who())
            self.shown.passed = told or self.shown.passed
            self._standing.pass_by(self.marks)

    def _who(self) -> Who:
        return Who(self.branch.pipeline, self.branch.name, self.epoch)

    def _account(self, outcomes: Sequence[Outcome]) -> None:
        self._standing.add(outcomes)
        self._display.account(outcomes, self.marks)

    def save(self, force: bool = False) -> None:
        """Store the offsets, at most once a second."""
        self._saved.save(self.epoch, self.marks, force=force)
