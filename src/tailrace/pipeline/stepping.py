"""Steps: an operator delivers messages one at a time, looking at each; and dead letters once more.

While a run is at work nobody steps: both hold the pipeline's lease.  Each step begins anew in the sink, under a higher
epoch, so what a run thought dead had under way cannot be finished any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.adaptors.contract import Who
from tailrace.adaptors.message import Message
from tailrace.coordination.lease import Lease
from tailrace.errors import HomeError, NotThere
from tailrace.home import Home
from tailrace.log.head import Head
from tailrace.log.intake import log_name
from tailrace.log.record import Op
from tailrace.log.topic import Topic
from tailrace.pipeline import offsets
from tailrace.pipeline.alongside import left_behind
from tailrace.pipeline.batch import until
from tailrace.pipeline.deadletters import dead_letters, settle
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.delivery import Branch, Outcome, Range, deliver_singly
from tailrace.pipeline.functions.namespaces import destination
from tailrace.pipeline.ledger import note
from tailrace.pipeline.offsets import Mark, begun
from tailrace.pipeline.operator import Logged, messages
from tailrace.pipeline.places import open_home

WAIT = 15.0
"""Seconds to wait for a run that may be dead."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What became of one message: "delivered", "filtered", "done before", "overtaken", "carried out" or "failed"."""

    logged: Logged
    outcome: str
    error: str = ""


@contextmanager
def alone(definition: Definition) -> Iterator[Home]:
    """The pipeline's home, while no run is at work."""
    home = open_home(definition.home)
    with Lease(home.store, f"pipeline-{definition.name}") as lease:
        if not lease.acquire(WAIT):
            raise HomeError(
                f"the pipeline {definition.name!r} is running; stop it before messages are delivered by hand"
            )
        yield home


def branch_of(definition: Definition, writer: str) -> Branch:
    """A writer's branch; errors stop it, whatever its policy: somebody is looking."""
    for sink in definition.sinks:
        if sink.name == writer:
            names = (definition.name, sink.name, definition.home, log_name(definition.name))
            return Branch(*names, sink.adaptor, dict(sink.settings), sink.namespace, sink.functions, "stop")
    raise NotThere(
        f"{definition.name!r} has no writer {writer!r}; it has: {', '.join(s.name for s in definition.sinks)}"
    )


def step(definition: Definition, writer: str, count: int, why: str) -> Iterator[Stepped]:
    """Deliver the next pending messages, one after another; ends after one that fails, or when none is pending."""
    branch = branch_of(definition, writer)
    with alone(definition) as home:
        note(home, definition.name, "step", why, writer=writer, count=count)
        topic = home.topic(branch.topic)
        with closing(branch.writer()) as sink:
            epoch, marks = begun(home.store, sink, (branch.pipeline, branch.name), topic.partitions)
        while count > 0 and (stepped := _next(home, topic, branch, epoch, marks)) is not None:
            home.store.run(offsets.save(branch.pipeline, branch.name, epoch, marks))
            yield stepped
            count = 0 if stepped.outcome == "failed" else count - 1


def _next(home: Home, topic: Topic, branch: Branch, epoch: int, marks: dict[int, Mark]) -> Stepped | None:
    """The first pending message of the first partition that can go on; a command when all stand before it."""
    head, standing = home.store.run(topic.log.head()), list[Logged]()
    ends, wide = until(head, {q: mark.resume for q, mark in marks.items()})
    for q, mark in marks.items():
        if mark.resume < ends[q]:
            logged = next(messages(home, branch.pipeline, {q: mark.resume}, {q: ends[q]}), None)
            if logged is None:  # compaction has removed what was left
                mark.acknowledge(ends[q] - 1)
                continue
            outcome = _single(branch, logged, epoch, marks)
            if not outcome.commands:
                return _told(logged, outcome)
            standing.append(logged)
    if standing and len(standing) < wide:
        raise left_behind(branch, [logged.partition for logged in standing], standing[0].message.namespace)
    return _command(branch, standing, epoch, marks) if standing else None


def _single(branch: Branch, logged: Logged, epoch: int, marks: dict[int, Mark]) -> Outcome:
    part = Range(logged.partition, logged.offset, logged.offset + 1, marks[logged.partition])
    outcome = deliver_singly(branch, [part], Who(branch.pipeline, branch.name, epoch), marks)
    for q, reached in outcome.reached.items():
        marks[q].acknowledge(reached - 1)
    return outcome


def _told(logged: Logged, outcome: Outcome) -> Stepped:
    if outcome.trouble is not None:
        return Stepped(logged, "failed", outcome.trouble.error)
    return Stepped(logged, "delivered" if outcome.rows else "filtered" if outcome.filtered else "done before")


def _command(branch: Branch, standing: list[Logged], epoch: int, marks: dict[int, Mark]) -> Stepped:
    namespace = standing[0].message.namespace
    wanted = re.search(branch.namespace, namespace) is not None
    if wanted:
        with closing(branch.writer()) as sink:
            who = Who(branch.pipeline, branch.name, epoch)
            sink.command(destination(branch.functions, namespace), "truncate", who)
    for logged in standing:
        marks[logged.partition].acknowledge(logged.offset)
    return Stepped(standing[0], "carried out" if wanted else "filtered")


def retry(definition: Definition, numbers: list[int], why: str) -> Iterator[Stepped]:
    """Deliver dead letters once more: these, or all.  One whose document has been delivered since is left as it is:
    what is newer must not be overwritten by what is older."""
    with alone(definition) as home:
        letters = {letter["number"]: letter for letter in dead_letters(home, definition.name)}
        for number in numbers or list(letters):
            if number not in letters:
                raise NotThere(f"{definition.name!r} has no dead letter {number}; `tailrace dead list` lists them")
            note(home, definition.name, "retry", why, number=number)
            stepped = _again(home, definition, letters[number])
            if stepped.outcome != "failed":
                settle(home, definition.name, number)
            yield stepped


def _again(home: Home, definition: Definition, letter: dict[str, Any]) -> Stepped:
    branch, q, at = branch_of(definition, letter["writer"]), letter["partition"], letter["offset"]
    logged = next(messages(home, definition.name, {q: at}, {q: at + 1}), None)
    if logged is None:
        raise NotThere(f"the message {q}:{at} is no longer in the commit log of {definition.name!r}: upkeep removed it")
    with closing(branch.writer()) as sink:
        epoch, marks = begun(home.store, sink, (branch.pipeline, branch.name), home.topic(branch.topic).partitions)
    since = _since(home.store.run(home.topic(branch.topic).log.head()), q, at)
    later = messages(home, definition.name, since, {p: mark.resume for p, mark in marks.items()})
    same = (one for one in later if _overtakes(one.message, logged.message))
    if (newer := next(same, None)) is not None:
        return Stepped(logged, "overtaken", f"by {newer.partition}:{newer.offset}")
    return _told(logged, _out_of_turn(branch, logged, epoch, marks))


def _since(head: Head, q: int, at: int) -> dict[int, int]:
    """From where on a document's later messages may be: in its partition, and if the log grew since, in any."""
    growth = next((one for one in head.grown if at < one.at.get(q, 0)), None)
    elsewhere = {} if growth is None else {p: growth.at.get(p, 0) for p in range(head.partitions)}
    return {**elsewhere, q: at + 1}


def _overtakes(newer: Message, older: Message) -> bool:
    """Whether a message says what has become of another's document since; a truncate says it of all."""
    return newer.namespace == older.namespace and (newer.op == Op.COMMAND or newer.id == older.id)


def _out_of_turn(branch: Branch, logged: Logged, epoch: int, marks: dict[int, Mark]) -> Outcome:
    """Deliver a message that the writer has passed: offsets stay what they are."""
    who, part = (
        Who(branch.pipeline, branch.name, epoch),
        Range(logged.partition, logged.offset, logged.offset + 1, Mark()),
    )
    return deliver_singly(branch, [part], who, marks)
