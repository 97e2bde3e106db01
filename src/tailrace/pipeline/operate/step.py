"""Steps: an operator delivers messages one at a time, and looks at each result.

An operator cannot step while a run is at work: both need the pipeline's lease.  `step` claims the sink under a higher
epoch, so that a run that was thought dead cannot finish its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tailrace.adaptors.contract import TRUNCATE, Command, Who
from tailrace.coordination.lease import Lease
from tailrace.errors import HomeError, NotThere
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.write.source_append import log_name
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.deliver import offsets
from tailrace.pipeline.deliver.batch import until
from tailrace.pipeline.deliver.claim import begun
from tailrace.pipeline.deliver.command_delivery import carry_out, is_wanted
from tailrace.pipeline.deliver.command_marks import left_behind
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, Outcome
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import deliver_singly
from tailrace.pipeline.operate.ledger import note
from tailrace.pipeline.operate.operator import Logged, messages
from tailrace.pipeline.runtime.open_topics import open_home

MAX_WAIT_FOR_RUN_SECONDS = 15.0
"""Seconds to wait for the lease of a run that may be dead."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result for one message: "delivered", "filtered", "done before", "overtaken" or "failed"; for a command:
    "carried out", "filtered", or "passed" if the sink cannot carry it out."""

    logged: Logged
    outcome: str
    error: str = ""


@contextmanager
def alone(definition: Definition) -> Iterator[Home]:
    """A block that holds the pipeline's lease and gets its home; `HomeError` while a run is at work."""
    home = open_home(definition.home)
    with Lease(home.store, f"pipeline-{definition.name}") as lease:
        if not lease.acquire(MAX_WAIT_FOR_RUN_SECONDS):
            raise HomeError(
                f"the pipeline {definition.name!r} is running; stop it before messages are delivered by hand"
            )
        yield home


def branch_of(definition: Definition, writer: str) -> Branch:
    """A writer's branch, in which every error stops delivery whatever its `on_error` says, so that the operator sees
    it."""
    for sink in definition.sinks:
        if sink.name == writer:
            names = (definition.name, sink.name, definition.home, log_name(definition.name))
            return Branch(*names, sink.adaptor, sink.checked(), sink.namespace, sink.functions, "stop")
    raise NotThere(
        f"{definition.name!r} has no writer {writer!r}; it has: {', '.join(s.name for s in definition.sinks)}"
    )


def step(definition: Definition, writer: str, count: int, why: str) -> Iterator[Stepped]:
    """Deliver the next `count` pending messages of a writer one by one, and yield the result of each.

    Ends early after a message that fails, or when none is pending."""
    branch = branch_of(definition, writer)
    with alone(definition) as home:
        note(home, definition.name, "step", why, writer=writer, count=count)
        topic = home.topic(branch.topic)
        with closing(branch.writer()) as sink:
            epoch, marks = begun(topic, sink, (branch.pipeline, branch.name))
        while count > 0 and (stepped := _next(home, topic, branch, epoch, marks)) is not None:
            home.store.run(offsets.save(branch.pipeline, branch.name, epoch, marks))
            yield stepped
            count = 0 if stepped.outcome == "failed" else count - 1


def _next(home: Home, topic: Topic, branch: Branch, epoch: int, marks: dict[int, Mark]) -> Stepped | None:
    """Deliver the first pending message of the first partition that does not stand before a command; carry the command
    out if all stand before it.  None if nothing is pending."""
    head, standing = home.store.run(topic.log.head()), list[Logged]()
    ends, wide = until(head, {q: mark.resume for q, mark in marks.items()})
    for q, mark in marks.items():
        if mark.resume < ends[q]:
            logged = next(messages(home, branch.pipeline, {q: mark.resume}, {q: ends[q]}), None)
            if logged is None:  # compaction has removed the pending messages
                mark.acknowledge(ends[q] - 1)
                continue
            outcome = _single(branch, logged, epoch, marks)
            if not outcome.commands:
                return told(logged, outcome)
            standing.append(logged)
    if standing and len(standing) < wide:
        raise left_behind(branch, [logged.partition for logged in standing], standing[0].message.namespace)
    return _command(branch, standing, epoch, marks) if standing else None


def _single(branch: Branch, logged: Logged, epoch: int, marks: dict[int, Mark]) -> Outcome:
    part = DeliveryRange(logged.partition, logged.offset, logged.offset + 1, marks[logged.partition])
    outcome = deliver_singly(branch, [part], Who(branch.pipeline, branch.name, epoch), marks)
    for q, reached in outcome.reached.items():
        marks[q].acknowledge(reached - 1)
    return outcome


def told(logged: Logged, outcome: Outcome) -> Stepped:
    """The result for a message, from the outcome of its delivery."""
    if outcome.trouble is not None:
        return Stepped(logged, "failed", outcome.trouble.error)
    return Stepped(logged, "delivered" if outcome.rows else "filtered" if outcome.filtered else "done before")


def _command(branch: Branch, standing: list[Logged], epoch: int, marks: dict[int, Mark]) -> Stepped:
    namespace, data = standing[0].message.namespace, standing[0].message.data
    command = Command(data.get("command") or TRUNCATE, data.get("to") or "")
    told = ""
    if is_wanted(branch, namespace):
        with closing(branch.writer()) as sink:
            told = carry_out(branch, sink, namespace, command, Who(branch.pipeline, branch.name, epoch))
    for logged in standing:
        marks[logged.partition].acknowledge(logged.offset)
    if told:
        return Stepped(standing[0], "passed", told)
    return Stepped(standing[0], "carried out" if is_wanted(branch, namespace) else "filtered")
