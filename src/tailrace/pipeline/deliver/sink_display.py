"""Sink display: shows in the status how far a writer is, how much is pending, and what it waits or searches for."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tailrace.errors import StorageError, TailraceError
from tailrace.log.groups.lag import lag
from tailrace.log.topic import Topic
from tailrace.pipeline.deliver.batch import size
from tailrace.pipeline.deliver.delivery import Branch, Outcome
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import Span
from tailrace.pipeline.runtime.status import SinkStatus
from tailrace.pipeline.runtime.trouble import Trouble


class SinkDisplay:
    """Writes the status of one writer."""

    def __init__(self, shown: SinkStatus, topic: Topic, branch: Branch) -> None:
        self.shown, self._topic, self._branch = shown, topic, branch

    def place(self, marks: Mapping[int, Mark]) -> None:
        """Show what the writer has acknowledged, and how much is pending."""
        self.shown.acknowledged = sum(mark.resume for mark in marks.values())
        self.lag(marks, {q: end for q, (_, end) in self._topic.ends().items()})

    def lag(self, marks: Mapping[int, Mark], ends: Mapping[int, int]) -> None:
        """Show how much is pending."""
        self.shown.lag = sum(max(0, ends[q] - mark.resume) for q, mark in marks.items())

    def look(self, marks: Mapping[int, Mark]) -> None:
        """Show how much is pending, and since when."""
        with suppress(TailraceError):  # the delivery reports a message that cannot be read
            resume, wall = {q: mark.resume for q, mark in marks.items()}, time.time()
            behind = self._topic.store.run(lag(self._topic.log, resume, wall))
            self.shown.lag, self.shown.oldest = behind.records, round((wall - behind.seconds) * 1000)

    def fall_behind(self, marks: Mapping[int, Mark]) -> None:
        """Show how much is pending while nothing is delivered; storage errors are ignored."""
        with suppress(StorageError):
            self.place(marks)

    def running(self) -> None:
        """Show that the writer delivers, without an error."""
        self.shown.state, self.shown.error = "running", ""

    def collecting(self) -> None:
        """Show that the outlet holds back a few messages."""
        self.shown.state = "collecting"

    def collected(self) -> None:
        """Show that the outlet no longer holds back messages."""
        if self.shown.state == "collecting":
            self.shown.state = "running"

    def waiting(self, error: str) -> None:
        """Show that the writer waits for a sink or a home that is away."""
        self.shown.state, self.shown.error = "waiting", error

    def is_waiting(self) -> bool:
        """Whether the writer is shown as waiting."""
        return self.shown.state == "waiting"

    def stopped(self, error: str) -> None:
        """Show that the writer has stopped and needs the operator."""
        self.shown.state, self.shown.error = "stopped", error

    def search(self, failure: Trouble, spans: Sequence[Span], left: int) -> None:
        """Show that the writer searches a failed batch for the messages that fail, and how many are left."""
        next = size(spans[-1]) if spans else left
        how = f"the next {next:,}" if self._branch.redeliver == "halves" else "one message"
        self.shown.state = "looking"
        self.shown.error = (
            f"a batch failed ({failure.error}); looking for the messages that fail, by delivering {how} at a "
            f"time: {left:,} are left"
        )

    def account(self, outcomes: Sequence[Outcome], marks: Mapping[int, Mark]) -> None:
        """Show what tasks have delivered, and print what functions have printed in them."""
        for outcome in outcomes:
            sys.stdout.write("".join(outcome.printed))
            self.shown.skipped += len(outcome.skipped)
        sys.stdout.flush()
        self.shown.rows += sum(o.rows for o in outcomes)
        self.shown.filtered += sum(o.filtered for o in outcomes)
        self.place(marks)
        latest = max((o.latest for o in outcomes), default=0)
        self.shown.delay = max(0.0, time.time() - latest / 1000) if latest else 0.0
        self.running()


def why_stopped(branch: Branch, trouble: Trouble) -> str:
    """The message about a writer that has stopped: why, and what the operator can do."""
    if trouble.partition < 0 or trouble.cause == "setup":
        return f"the writer {branch.name!r} stopped: {trouble.error.rstrip(';')}; mend the cause and run again"
    at = f"{trouble.partition}:{trouble.offset}"
    return (
        f"the writer {branch.name!r} stopped at message {at} ({trouble.namespace}, id {trouble.id}): {trouble.error}; "
        f"mend the cause and run again, or pass it with `tailrace offset mark {branch.pipeline} {branch.name} {at} "
        "--why …`"
    )
