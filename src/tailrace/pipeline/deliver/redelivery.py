"""Redelivery: delivers a failed batch again, until each failing message is found and the others are delivered.

By default the task halves the batch: it finishes a half that succeeds as one batch, and halves a half that fails again.
So one bad message among 20,000 costs some 15 batches.  With `redeliver="singly"` each message is a batch of its own.
Either way the same message is found to fail, and the same messages are acknowledged before it.

A task works for a few seconds and returns how far it is.  The driver shows that, and starts a task for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.adaptors.contract import Staged, Who, Writer
from tailrace.coordination.failure import verdict
from tailrace.log.read.fetched import Fetched
from tailrace.pipeline.deliver.batch import size
from tailrace.pipeline.deliver.dead_letters import bury
from tailrace.pipeline.deliver.delivery import (
    Branch,
    DeliveryRange,
    Failed,
    Outcome,
    blame,
    read_pending,
    through,
    transformed,
)
from tailrace.pipeline.deliver.offsets import Mark, stored
from tailrace.pipeline.ingest.coalesce import joined
from tailrace.pipeline.runtime.open_topics import open_home
from tailrace.pipeline.runtime.trouble import Trouble, trouble_of

Span = list[DeliveryRange]
"""A part of a batch that is delivered together: ranges of one or several partitions."""
SLICE_SECONDS = 2.0
"""Seconds after which a task returns how far it is."""
HELD_ROWS, HELD_BYTES = 4096, 64 * 1024 * 1024
"""A span within these numbers of messages and bytes is read once and then halved in memory."""


def halved(span: Sequence[DeliveryRange]) -> tuple[Span, Span]:
    """Halve a failed span by its partitions, or by offsets if it has only one partition."""
    if len(span) > 1:
        return list(span[: len(span) // 2]), list(span[len(span) // 2 :])
    (part,) = span
    middle = (part.start + part.end) // 2
    return [replace(part, end=middle)], [replace(part, start=middle)]


def clipped(spans: Sequence[Span], marks: Mapping[int, Mark]) -> list[Span]:
    """The pending parts of these spans, by the marks; none if the spans leave a gap behind the marks: then the caller
    begins the search again."""
    out: list[Span] = []
    reached = {q: mark.resume for q, mark in marks.items()}
    for span in reversed(spans):
        if any(part.partition not in reached or part.start > reached[part.partition] for part in span):
            return []
        left = [replace(part, start=max(part.start, reached[part.partition])) for part in span]
        out.append([part for part in left if part.start < part.end])
        reached |= {part.partition: max(part.end, reached[part.partition]) for part in span}
    return [span for span in reversed(out) if span]


def redeliver(
    branch: Branch, spans: Sequence[Span], who: Who, marks: Mapping[int, Mark], seconds: float = SLICE_SECONDS
) -> Outcome:
    """Deliver spans that failed together, in halves or message by message as the branch's `redeliver` says.

    Returns after about `seconds`, with the rest in the outcome's `left`; errors are in its `trouble`."""
    if branch.redeliver == "singly":
        return deliver_singly(branch, [part for span in reversed(spans) for part in span], who, marks, seconds)
    return _deliver_halves(branch, list(spans), who, marks, time.monotonic() + seconds)


def _deliver_halves(branch: Branch, spans: list[Span], who: Who, marks: Mapping[int, Mark], deadline: float) -> Outcome:
    outcome, marks = Outcome(), {q: mark.copy() for q, mark in marks.items()}
    try:
        with closing(branch.writer()) as writer:
            work = _Work(branch, writer, who, marks, outcome)
            while spans and outcome.trouble is None and not _is_over(deadline):
                span = [part for part in spans.pop() if part.partition not in outcome.commands and size([part])]
                spans += work.deliver(span, deadline) if span else []
    except Exception as error:
        outcome.trouble = trouble_of(error)
    outcome.left = [[part for part in span if part.partition not in outcome.commands] for span in spans]
    return outcome


@dataclass(slots=True)
class _Work:
    """A task's writer, marks and outcome while it delivers in halves."""

    branch: Branch
    writer: Writer
    who: Who
    marks: dict[int, Mark]
    outcome: Outcome

    def deliver(self, span: Span, deadline: float) -> list[Span]:
        """Deliver a span; returns the parts that are left, the next one last."""
        if len(span) == 1 and size(span) <= HELD_ROWS and (held := self._held(span[0])) is not None:
            return self._search(span[0], *held, deadline)
        part = Outcome()
        trouble = self._batch(through(self.branch, span, part), part)
        if trouble is None or trouble.cause != "data":
            self.outcome.trouble = trouble
            return []
        return list(reversed(halved(span)))

    def _held(self, part: DeliveryRange) -> tuple[list[Fetched], Outcome] | None:
        """The messages of a range, and the outcome of reading them; None if they are more than HELD_BYTES."""
        told, held, total = Outcome(), list[Fetched](), 0
        for fetched in read_pending(self.branch, part, told):
            held.append(fetched)
            total += fetched.data.nbytes
            if total > HELD_BYTES and size([part]) > 1:
                return None
        return held, told

    def _search(self, part: DeliveryRange, held: list[Fetched], told: Outcome, deadline: float) -> list[Span]:
        """Deliver messages in halves.  At the deadline, if there was progress, returns the rest to be read again."""
        stack, q, reached = [held], part.partition, part.start
        while stack:
            if _is_over(deadline) and reached > part.start:
                return [[replace(part, start=reached)]]
            some = stack.pop()
            count = sum(fetched.data.num_rows for fetched in some)
            if count == 1:
                _one(self.branch, self.writer, some[0], self.who, self.marks, self.outcome)
            elif count and (trouble := self._together(some)) is not None:
                if trouble.cause == "data":
                    stack += _split(some, count // 2)
                    continue
                self.outcome.trouble = trouble
            if self.outcome.trouble is not None:
                return []
            reached = some[-1].end if some else reached
        self.outcome.reached[q] = told.reached[q]
        self.marks[q].acknowledge(told.reached[q] - 1)
        self.outcome.commands |= told.commands
        self.outcome.filtered += told.filtered
        self.outcome.latest = max(self.outcome.latest, told.latest)
        return []

    def _together(self, some: list[Fetched]) -> Trouble | None:
        part = Outcome(reached={some[-1].partition: some[-1].end})
        rows = (out for fetched in joined(some) for out in transformed(self.branch, fetched, part))
        return self._batch(_counted(rows, part), part)

    def _batch(self, rows: Iterable[pa.RecordBatch], part: Outcome) -> Trouble | None:
        """Deliver rows as one batch that ends where `part` has reached; returns the trouble if it failed, and then the
        staged rows are discarded."""
        staged: list[Staged] = []
        try:
            staged.append(self.writer.stage(rows))
            after = {q: mark.copy() for q, mark in self.marks.items()}
            for q, reached in part.reached.items():
                after[q].acknowledge(reached - 1)
            if staged[0].rows or staged[0].namespaces:
                self.writer.finish(staged, self.who, stored(after))
        except Failed as failed:
            return failed.trouble
        except Exception as error:
            with suppress(Exception):
                self.writer.discard(staged)
            return trouble_of(error)
        self.marks |= after
        self.outcome.reached |= part.reached
        self.outcome.commands |= part.commands
        self.outcome.rows += part.rows
        self.outcome.filtered += part.filtered
        self.outcome.latest = max(self.outcome.latest, part.latest)
        return None


def _counted(rows: Iterable[pa.RecordBatch], part: Outcome) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        part.rows += batch.num_rows
        yield batch


def _split(some: list[Fetched], count: int) -> list[list[Fetched]]:
    """Split messages in two, the first part with `count` of them; returns the second part first."""
    first: list[Fetched] = []
    for n, fetched in enumerate(some):
        if fetched.data.num_rows > count:
            rest = fetched.rows(count, fetched.data.num_rows - count)
            return [[rest, *some[n + 1 :]], [*first, *([fetched.rows(0, count)] if count else [])]]
        first.append(fetched)
        count -= fetched.data.num_rows
    return [[], first]


def deliver_singly(
    branch: Branch, ranges: Sequence[DeliveryRange], who: Who, marks: Mapping[int, Mark], seconds: float | None = None
) -> Outcome:
    """Deliver messages one at a time, each finished before the next, in a loop within this task.

    Ends at the first message that cannot be delivered, unless the branch skips it or puts it aside, or after about
    `seconds`; the rest is in the outcome's `left`."""
    outcome, marks = Outcome(), {q: mark.copy() for q, mark in marks.items()}
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        with closing(branch.writer()) as writer:
            for part in ranges:
                _apart(branch, writer, part, who, marks, outcome, deadline)
                if outcome.trouble is not None or _is_over(deadline):
                    break
    except Exception as error:
        outcome.trouble = trouble_of(error)
    left = (replace(part, start=outcome.reached.get(part.partition, part.start)) for part in ranges)
    outcome.left = [[part for part in left if part.start < part.end and part.partition not in outcome.commands]]
    return outcome


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _apart(
    branch: Branch,
    writer: Writer,
    part: DeliveryRange,
    who: Who,
    marks: dict[int, Mark],
    outcome: Outcome,
    deadline: float | None = None,
) -> None:
    """Deliver the messages of a range one by one, as `deliver_singly` does."""
    for fetched in read_pending(branch, part, outcome):
        for n in range(fetched.data.num_rows):
            _one(branch, writer, fetched.rows(n, 1), who, marks, outcome)
            if outcome.trouble is not None or _is_over(deadline):
                return


def _one(branch: Branch, writer: Writer, one: Fetched, who: Who, marks: dict[int, Mark], outcome: Outcome) -> None:
    outcome.reached[one.partition] = one.offset
    trouble = _single(branch, writer, one, who, marks, outcome)
    what = verdict(trouble.cause, branch.on_error) if trouble is not None else None
    if what in ("wait", "stop"):
        outcome.trouble = trouble
        return
    if trouble is not None:
        outcome.skipped.append(trouble)
        if what == "dead_letter":  # before it is acknowledged: then the commit log may drop it
            bury(open_home(branch.home), branch.pipeline, branch.name, trouble)
    marks[one.partition].acknowledge(one.offset)
    outcome.reached[one.partition] = one.end


def _single(
    branch: Branch, writer: Writer, one: Fetched, who: Who, marks: Mapping[int, Mark], outcome: Outcome
) -> Trouble | None:
    after = marks[one.partition].copy()
    after.acknowledge(one.offset)
    staged: list[Staged] = []
    try:
        batches = transformed(branch, one, outcome)
        staged += [writer.stage(batches)] if batches else []
        writer.finish(staged, who, stored({**marks, one.partition: after}))
    except Failed as failed:
        return failed.trouble
    except Exception as error:
        with suppress(Exception):
            writer.discard(staged)
        return blame(one, error)
    outcome.rows += sum(batch.num_rows for batch in batches)
    return None
