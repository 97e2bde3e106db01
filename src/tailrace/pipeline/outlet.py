"""Outlets: each writer at its own pace, with Spark jobs of its own.

Whenever the log has grown a job delivers what is new.  The truth about progress is the offset log, and where a sink
keeps offsets with its data, the sink.  A batch that fails is delivered again one message at a time; what still fails
is a matter of the branch's policy.

Where much is pending, as in a copy, tasks stage the next batch while the sink finishes the one before.  Batches are
finished one after the other: what was staged ahead of one that fails is thrown away.

A batch without an answer may have been finished, or may yet be.  So after any error the outlet begins anew, under a
higher epoch: what was under way can no longer be finished, and the sink says what was.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any, TypeVar

from tailrace.adaptors.contract import Who
from tailrace.errors import StorageError, TailraceError
from tailrace.pipeline import offsets
from tailrace.pipeline.alongside import left_behind
from tailrace.pipeline.batch import FIRST, GROWS, MOST, Batch, pending, size, until
from tailrace.pipeline.beside import beside
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.delivery import Branch, Outcome, Range, deliver, deliver_singly
from tailrace.pipeline.engine import Engine
from tailrace.pipeline.functions.frames import has_frames
from tailrace.pipeline.functions.namespaces import destination
from tailrace.pipeline.offsets import Mark, begun, stored
from tailrace.pipeline.sparkjob import LOSSES, Lost, in_tasks
from tailrace.pipeline.status import Sink, Status
from tailrace.pipeline.trouble import Trouble, cause_of, trouble_of, worst

T = TypeVar("T")
FEW = 20_000
"""Up to so many records a batch is one task."""

PAUSE = 1.0
"""Seconds before something that is away is asked again."""


class Stuck(TailraceError):
    """A writer has stopped; the operator's help is needed."""


class Outlet:
    """One writer of a run."""

    def __init__(
        self,
        engine: Engine,
        log: CommitLog,
        branch: Branch,
        status: Status,
        stop: Event,
        *,
        flush: float,
    ) -> None:
        self._engine, self._log, self.branch, self._stop = engine, log, branch, stop
        self._flush, self._flushed = flush, 0.0
        self.shown = status.sinks.setdefault(branch.name, Sink())
        self._store = log.home.store
        self._writer, self._by = branch.writer(), secrets.token_hex(8)
        self._grown, self._losses, self._most = Event(), 0, FIRST
        self._writer.check()
        self.problem: Trouble | None = None

    def begin(self) -> None:
        """From now on no earlier run can finish anything, and it is known how far they came."""
        self._begin(None)

    def _begin(self, held: int | None) -> None:
        """Anew, after any error: what was under way can no longer be finished, and the sink says what was."""
        names, partitions = (self.branch.pipeline, self.branch.name), self._log.topic.partitions
        self.epoch, self.marks = begun(self._store, self._writer, names, partitions, held, self._by)
        self._waiting: dict[int, tuple[str, str]] = {}
        self._wide = partitions
        self._careful: dict[int, int] = {}
        self._doubtful = False
        self._place()

    def _place(self) -> None:
        """Show how far it is."""
        self.shown.offset = sum(mark.low + 1 for mark in self.marks.values()) - 1
        ends = self._log.topic.ends()
        self.shown.lag = sum(ends[q][1] - mark.resume for q, mark in self.marks.items())

    @property
    def untouched(self) -> bool:
        """Whether it has never acknowledged anything, and no operator has said that it should start anew."""
        return all(mark.low < 0 and not mark.ahead and not mark.word for mark in self.marks.values())

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
        self.shown.state = "running"
        while not self._stop.is_set() and self.problem is None:
            try:
                self._once()
            except Stuck as stuck:
                self.shown.state, self.shown.error = "stopped", str(stuck)
            except Exception as error:
                self._troubled(error)
        while not self._stop.wait(PAUSE):
            self._fall_behind()

    def _fall_behind(self) -> None:
        """While nothing is delivered, show how much there is to be."""
        with suppress(StorageError):
            self._place()

    def _once(self) -> None:
        if self._doubtful:
            self._again()
        self.catch_up()
        self._grown.wait(1.0)
        self._grown.clear()

    def _again(self) -> None:
        careful = self._careful
        self._begin(self.epoch)
        self._careful = careful

    def _troubled(self, error: Exception) -> None:
        """The home, the log or the sink failed outside of a batch."""
        self._doubtful = True
        if cause_of(error) == "away":
            self._wait(trouble_of(error))
            return
        self.problem = trouble_of(error)
        self.shown.state, self.shown.error = "stopped", _told(self.branch, self.problem)

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
        """Deliver everything that is in the log now; less if something is in the way."""
        while not (self._stop.is_set() or self._doubtful) and (ranges := self._ranges()):
            if self._careful:
                self._singly(ranges)
            else:
                self._bulk(ranges)
            if not self._doubtful:
                self._commands()
            self.save()
        self.save(force=True)
        if self._waiting and not (self._stop.is_set() or self._doubtful):
            raise left_behind(self.branch, self._waiting, next(iter(self._waiting.values()))[0])

    def _ranges(self) -> list[Range]:
        """What is pending; where a batch failed, up to its end."""
        head = self._store.run(self._log.topic.log.head())
        if head.partitions > len(self.marks):  # the log has grown: go on with marks for all of it
            self.save(force=True)
            self._again()
        ends = dict(head.next)
        self.shown.lag = sum(ends[q] - mark.resume for q, mark in self.marks.items())
        ends, self._wide = until(head, {q: mark.resume for q, mark in self.marks.items()})
        careful = {q: end for q, end in self._careful.items() if q not in self._waiting}
        self._careful = {q: end for q, end in careful.items() if self.marks[q].resume < end}
        ends = self._careful or ends
        return pending(self.marks, {q: end for q, end in ends.items() if q not in self._waiting}, self._most)

    def _bulk(self, ranges: Sequence[Range]) -> None:
        """A batch, and those that could be staged meanwhile."""
        batch: Batch | None = self._staged(ranges)
        while batch is not None:
            batch = self._settled(batch)
            self.save()

    def _staged(self, ranges: Sequence[Range]) -> Batch:
        try:
            outcomes = self._tasks(ranges)
        except Lost as error:
            return Batch(ranges, trouble=self._lost(error))
        self._most = min(GROWS * self._most, MOST)
        return Batch(ranges, outcomes, worst([o.trouble for o in outcomes if o.trouble is not None]))

    def _settled(self, batch: Batch) -> Batch | None:
        """Finish a batch; where much more is pending, stage the next one meanwhile, and give that."""
        if batch.trouble is not None:
            self._failed(batch, batch.trouble)
            return None
        after, ahead = self._after(batch), None
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

    def _further(self, batch: Batch, after: Mapping[int, Mark]) -> list[Range]:
        """What comes next, if it is much and nothing stands before it."""
        if self._stop.is_set() or self._waiting or any(outcome.commands for outcome in batch.outcomes):
            return []
        with suppress(StorageError):
            head = self._store.run(self._log.topic.log.head())
            if head.partitions == len(after):
                ends, _ = until(head, {q: mark.resume for q, mark in after.items()})
                ranges = pending(after, ends, self._most)
                return ranges if size(ranges) > FEW else []
        return []

    def _failed(self, batch: Batch, trouble: Trouble) -> None:
        self._discard(batch)
        if trouble.cause == "data":
            self._careful = {part.partition: part.end for part in batch.ranges}
            self.shown.state = "one at a time"
        else:
            self._face(trouble)

    def _discard(self, batch: Batch | None) -> None:
        with suppress(Exception):  # who cannot be reached keeps it for now, and tidies up later
            self._writer.discard([o.staged for o in (batch.outcomes if batch else ()) if o.staged is not None])

    def _tasks(self, ranges: Sequence[Range]) -> list[Outcome]:
        if has_frames(self.branch.functions):
            return [deliver(self.branch, list(ranges))]
        shares = [list(ranges)]
        if size(ranges) > FEW:
            many = min(self._engine.parallel, len(ranges))
            shares = [list(ranges[n::many]) for n in range(many)]
        return self._job(deliver, [(self.branch, share) for share in shares])

    def _job(self, function: Callable[..., T], work: Sequence[tuple[Any, ...]]) -> list[T]:
        found = in_tasks(self._engine.context, function, work)
        self._losses = 0
        return found

    def _lost(self, error: Lost) -> Trouble:
        """A worker may have died: again.  If every one does, it is not the worker."""
        self._losses += 1
        return Trouble(str(error), "away" if self._losses < LOSSES else "setup")

    def _after(self, batch: Batch) -> dict[int, Mark]:
        """Where it will be once a batch is finished."""
        after = {q: mark.copy() for q, mark in self.marks.items()}
        for outcome in batch.outcomes:
            for q, reached in outcome.reached.items():
                after[q].acknowledge(reached - 1)
        return after

    def _finish(self, batch: Batch, after: Mapping[int, Mark]) -> Trouble | None:
        """Make a batch visible, with its offsets."""
        if batch.staged:
            try:
                self._writer.finish(batch.staged, self._who(), stored(after))
            except Exception as error:
                self._doubtful = True
                return trouble_of(error)
        return None

    def _singly(self, ranges: Sequence[Range]) -> None:
        """A batch that failed, one message at a time, in one task; or here, where that is needed."""
        self.shown.state = "one at a time"
        work = (self.branch, list(ranges), self._who(), self.marks)
        try:
            if has_frames(self.branch.functions) or self._writer.on_driver:
                outcome = deliver_singly(*work)
            else:
                (outcome,) = self._job(deliver_singly, [work])
        except Lost as error:
            outcome = Outcome(trouble=self._lost(error))
        for q, reached in outcome.reached.items():
            self.marks[q].acknowledge(reached - 1)
        self._account([outcome])
        self.shown.skipped += len(outcome.skipped)
        if outcome.trouble is not None:
            self._face(outcome.trouble)

    def _face(self, trouble: Trouble) -> None:
        """Wait, or stop.  Either way it is not known what the sink has."""
        self._doubtful = True
        if trouble.cause == "away":
            self._wait(trouble)
            return
        self.save(force=True)
        self.problem = trouble
        raise Stuck(_told(self.branch, trouble))

    def _wait(self, trouble: Trouble) -> None:
        """Something cannot be reached: nothing is lost by waiting."""
        self.shown.state, self.shown.error = "waiting", trouble.error
        self._fall_behind()
        self._stop.wait(PAUSE)

    def _commands(self) -> None:
        """Once every partition stands before the command, all rows before it are in: carry it out."""
        if not self._waiting or len(self._waiting) < self._wide:
            return
        namespace, command = next(iter(self._waiting.values()))
        if re.search(self.branch.namespace, namespace):
            self._writer.command(destination(self.branch.functions, namespace), command, self._who())
        for q in self._waiting:
            self.marks[q].acknowledge(self.marks[q].resume)
        self._waiting = {}

    def _who(self) -> Who:
        return Who(self.branch.pipeline, self.branch.name, self.epoch)

    def _account(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._waiting |= outcome.commands
        self.shown.rows += sum(o.rows for o in outcomes)
        self.shown.filtered += sum(o.filtered for o in outcomes)
        self._place()
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
    if trouble.partition < 0 or trouble.cause == "setup":
        return f"the writer {branch.name!r} stopped: {trouble.error.rstrip(';')}; mend the cause and run again"
    at = f"{trouble.partition}:{trouble.offset}"
    return (
        f"the writer {branch.name!r} stopped at message {at} ({trouble.namespace}, id {trouble.id}): {trouble.error}; "
        f"mend the cause and run again, or pass it with `tailrace offset mark {branch.pipeline} {branch.name} {at} "
        "--why …`"
    )
