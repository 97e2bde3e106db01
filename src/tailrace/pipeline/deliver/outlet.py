"""Outlets: each delivers the commit log into one sink, in its own thread, with its own Spark jobs and at its own pace.

Whenever the log has grown, a job delivers the new messages.  The home's offsets say how far the writer is, and so does
the sink if it keeps offsets with its data.  A batch that fails is delivered again in ever smaller parts (see
failed_batch, redelivery); the branch's `on_error` decides about a message that fails alone.

If much is pending, as in a copy, tasks stage the next batch while the sink finishes the one before.  Batches are
finished one after the other: if one fails, what was staged after it is discarded.

A batch without an answer may have been finished, or may yet be.  So after any error the outlet begins again under a
higher epoch: then no batch of the earlier epoch can be finished, and the sink says which ones were.
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
"""Seconds after which the outlet looks again at the messages that it holds back."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before the outlet retries a home or a sink that is away."""


class Outlet:
    """Delivers to one writer of a run, from a thread of its own."""

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
        """Whether the sink stores offsets with its data; None: unknown before the first finished batch."""

    @property
    def shown(self) -> SinkStatus:
        """The writer's status."""
        return self._display.shown

    def check(self, known: bool = False) -> StorageError | None:
        """Check the sink, and raise what is wrong with it.  Returns the error instead if the sink is away, the pipeline
        is `known` and this writer has delivered before."""
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
        """Whether the home has no offsets of this writer: then only its sink can say where it starts."""
        return is_untouched(self._saved.load(self._log.topic.partitions)[1])

    def begin(self) -> bool:
        """Fence earlier runs, so that none can finish another batch, and read how far they have come.

        Returns False if the sink is away: the outlet's thread then begins once the sink is back."""
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
        """Check and claim the sink, for the first time or again after an error."""
        self._claim.check()
        self._start_from(*self._claim.take(self._log.topic, held, self._saved.finished))

    def _start_from(self, epoch: int, marks: dict[int, Mark]) -> None:
        self.epoch, self.marks = epoch, marks
        self._standing = StandingCommands(len(marks))
        self._failed_batch = FailedBatch()
        self._doubtful = False
        self._display.place(marks)

    def look(self) -> None:
        """Show how much is pending, and since when.  Called from the status thread: this outlet's own may be stuck."""
        self._display.look(self.marks)

    @property
    def untouched(self) -> bool:
        """Whether the writer has acknowledged nothing, and no operator has set a mark."""
        return is_untouched(self.marks)

    def start_at(self, starts: Mapping[int, int]) -> None:
        """Acknowledge everything before these offsets, and store that."""
        for q, at in starts.items():
            self.marks[q].acknowledge(at - 1)
        self.save(force=True)

    # -- its thread
    def start(self) -> None:
        """Start the thread that follows the log."""
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
        if not (self._doubtful or self._stop.is_set()):
            self._writer.idle()
        self._grown.wait(1.0)
        self._grown.clear()

    def _again(self) -> None:
        failed = self._failed_batch
        self._begin(self.epoch if self._claim.taken else None)
        self._failed_batch = failed

    def _troubled(self, error: Exception) -> None:
        """Wait or stop after an error outside of a batch."""
        self._doubtful = True
        if cause_of(error) == "away":
            self._wait(trouble_of(error))
            return
        self.problem = trouble_of(error)
        self._display.stopped(why_stopped(self.branch, self.problem))

    @property
    def working(self) -> bool:
        """Whether the outlet's thread still delivers."""
        return self._thread.is_alive() and self.problem is None

    def finish(self, seconds: float) -> None:
        """Wait up to `seconds` until the current batch ends, and store the offsets."""
        self._grown.set()
        self._notifier.close()
        self._thread.join(seconds)
        try:
            self.save(force=True)
        finally:
            if self.problem is None:
                self.shown.state = "ended"

    def close(self) -> None:
        """Close the writer, also that of an outlet that was never started."""
        self._writer.close()

    # -- batches
    def catch_up(self) -> None:
        """Deliver everything in the log; returns early if the run stops, after an error, or if a few messages are held
        back."""
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
        """Hold back nothing from now on: the run ends when everything is delivered."""
        self._pacing.hurry()

    def _holds(self, ranges: Sequence[DeliveryRange]) -> bool:
        """Whether to hold these few records back for now, so that the sink gets fewer and larger batches."""
        if self._failed_batch or self._standing or not self._jobs.is_one_task(ranges):
            return False
        return self._pacing.holds(self._writer.every)

    def _let_go(self) -> None:
        """Deliver the messages that were held back, at the end of a run.  If that fails, the next run delivers them."""
        if not self._doubtful and (ranges := self._ranges()):
            self._bulk(ranges)
            self.save(force=True)

    def _ranges(self) -> list[DeliveryRange]:
        """The pending ranges of the next batch; after a failed batch, up to the end of that."""
        head = self._backlog.head()
        if head.partitions > len(self.marks):  # the log has grown: begin again, with marks for all partitions
            self.save(force=True)
            self._again()
        self._display.lag(self.marks, head.next)
        return self._backlog.next(head, self.marks, self._failed_batch, self._standing)

    def _bulk(self, ranges: Sequence[DeliveryRange]) -> None:
        """Deliver a batch, and the batches that tasks stage meanwhile."""
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
        """Finish a staged batch.  If much more is pending, tasks stage the next one meanwhile, which is returned."""
        if batch.trouble is not None:
            self._failed(batch, batch.trouble)
            return None
        if not self._pass_commands(batch):
            return None
        after, ahead = batch.after(self.marks), None
        if further := self._further(batch, after):
            finishing = beside(self.branch.name, self._finish, batch, after)
            with suppress(Exception):  # the next batch meets the error again
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
        """Finish the rows before each command that all tasks have passed, carry the command out, and leave the rows
        behind the last one in the batch; False if a step failed or the run stops."""
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
        """The ranges of the next batch, if they are many and no command stands before them; else none."""
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
        with suppress(Exception):  # a sink that is away keeps the staged rows, and removes them later
            if batch is not None and batch.unfinished:
                self._writer.discard(batch.unfinished)

    def _finish(self, batch: StagedBatch, after: Mapping[int, Mark]) -> Trouble | None:
        """Have the writer make a batch visible, together with its offsets; returns the trouble if that fails."""
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
        """Redeliver a part of the failed batch, for some seconds."""
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
        """Wait if the trouble is "away", else stop with `Stuck`.  Either way it is unknown what the sink has stored."""
        self._doubtful = True
        if trouble.cause == "away":
            self._wait(trouble)
            return
        self.save(force=True)
        self.problem = trouble
        raise Stuck(why_stopped(self.branch, trouble))

    def _wait(self, trouble: Trouble) -> None:
        """Show that the writer waits, and pause before the next attempt."""
        self._display.waiting(trouble.error)
        self._display.fall_behind(self.marks)
        self._stop.wait(RETRY_PAUSE_SECONDS)

    def _commands(self) -> None:
        """Carry out the command before which every partition stands, if there is one."""
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
        """Store the offsets, at most every `flush` seconds, or at once with `force`."""
        self._saved.save(self.epoch, self.marks, force=force)
