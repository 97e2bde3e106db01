"""Retries of dead letters: each message is delivered once more, out of turn, unless the commit log has a newer state.

However many letters there are, a retry reads their topic three times (for the list, for their documents, for their
messages) and the commit log once for each writer.  It keeps one message at a time in memory.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Staged, Who
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import messages_of, namespace_of
from tailrace.errors import NotThere
from tailrace.home import Home
from tailrace.log.format.head import Head
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Op
from tailrace.log.topic import Topic
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.deliver.claim import begun
from tailrace.pipeline.deliver.dead_letters import dead_letters, dead_messages, settle
from tailrace.pipeline.deliver.delivery import Branch, Outcome
from tailrace.pipeline.deliver.offsets import Mark, stored
from tailrace.pipeline.operate.ledger import note
from tailrace.pipeline.operate.operator import Logged, messages
from tailrace.pipeline.operate.step import Stepped, alone, branch_of, told
from tailrace.pipeline.runtime.trouble import trouble_of

_Subject = tuple[str, str | None, int]
"""A namespace, an id (None: a command, which concerns all ids), and a partition."""


@dataclass(slots=True)
class _Turn:
    """The retry of one writer's letters, with what the commit log has about their documents."""

    branch: Branch
    topic: Topic
    """The commit log."""
    newer: dict[int, str] = field(default_factory=dict)
    """By a letter's number, the partition and offset of a later message about the same document."""
    unknown: set[int] = field(default_factory=set)
    """The numbers of the letters after which retention has removed messages."""


def retry(definition: Definition, numbers: list[int], why: str) -> Iterator[Stepped]:
    """Deliver the dead letters with these numbers, or all, once more, oldest first; yields the result of each.

    A letter whose document the writer has delivered since is settled without delivery, since an older state must not
    overwrite a newer one.  If retention has removed messages after a letter, that cannot be known: then the letter is
    delivered only if its number is given.  `NotThere` for a number without a letter."""
    with alone(definition) as home:
        letters = {letter["number"]: letter for letter in dead_letters(home, definition.name)}
        for number in numbers:
            if number not in letters:
                raise NotThere(f"{definition.name!r} has no dead letter {number}; `tailrace dead list` lists them")
        chosen = [letters[number] for number in numbers or letters]
        turns = _turns(home, definition, chosen)
        for letter, one in dead_messages(home, definition.name, chosen):
            note(home, definition.name, "retry", why, letter=letter["number"])
            stepped = _again(turns[letter["writer"]], letter["number"], one, insisted=bool(numbers))
            if stepped.outcome != "failed":
                settle(home, definition.name, letter["number"])
            yield stepped


def _turns(home: Home, definition: Definition, letters: list[dict[str, Any]]) -> dict[str, _Turn]:
    """Prepare the retry of each writer that has letters among these."""
    turns: dict[str, _Turn] = {}
    for writer in dict.fromkeys(letter["writer"] for letter in letters):
        branch = branch_of(definition, writer)
        turns[writer] = _Turn(branch, home.topic(branch.topic))
        _look_for_newer(home, definition.name, [one for one in letters if one["writer"] == writer], turns[writer])
    return turns


def _look_for_newer(home: Home, pipeline: str, letters: list[dict[str, Any]], turn: _Turn) -> None:
    """Read the commit log once, from the oldest letter to the writer's position, and note the letters whose documents
    have later messages."""
    head, ends = home.store.run(turn.topic.log.head()), turn.topic.ends()
    waiting: dict[_Subject, list[tuple[int, int]]] = {}
    start: dict[int, int] = {}
    for letter, one in dead_messages(home, pipeline, letters):
        (message,) = messages_of(one.data)
        since = _since(head, one.partition, one.offset)
        if any(at < ends[q][0] for q, at in since.items()):
            turn.unknown.add(letter["number"])
        for q, at in since.items():
            start[q] = min(start.get(q, at), at)
            for id in (message.id, None):
                heapq.heappush(waiting.setdefault((message.namespace, id, q), []), (at, letter["number"]))
    later = {q: max(at, ends[q][0]) for q, at in start.items()}
    _, marks = _begun(turn)
    for found in messages(home, pipeline, later, {q: mark.resume for q, mark in marks.items()}):
        message = found.message
        about = None if message.op == Op.COMMAND else message.id
        older = waiting.get((message.namespace, about, found.partition), [])
        while older and older[0][0] <= found.offset:
            turn.newer.setdefault(heapq.heappop(older)[1], f"{found.partition}:{found.offset}")


def _begun(turn: _Turn) -> tuple[int, dict[int, Mark]]:
    """Claim the sink under a new epoch for each letter: their batches all have the same offsets."""
    with closing(turn.branch.writer()) as sink:
        return begun(turn.topic, sink, (turn.branch.pipeline, turn.branch.name))


def _since(head: Head, q: int, at: int) -> dict[int, int]:
    """By partition, the offset from which later messages of a document may come: in its own partition, and if the log
    has grown since, in any."""
    growth = next((one for one in head.grown if at < one.at.get(q, 0)), None)
    elsewhere = {} if growth is None else {p: growth.at.get(p, 0) for p in range(head.partitions)}
    return {**elsewhere, q: at + 1}


def _again(turn: _Turn, number: int, one: Fetched, *, insisted: bool) -> Stepped:
    (message,) = messages_of(one.data)
    logged = Logged(one.partition, one.offset, message)
    if number in turn.newer:
        return Stepped(logged, "overtaken", f"by {turn.newer[number]}")
    if number in turn.unknown and not insisted:
        return Stepped(
            logged,
            "failed",
            "retention has removed messages that came after it, so it is not known whether the sink has a newer state "
            f"of this document; if it has not, name it: `tailrace dead retry FILE {number} --why …`",
        )
    branch, (epoch, marks) = turn.branch, _begun(turn)
    return told(logged, _out_of_turn(branch, one, Who(branch.pipeline, branch.name, epoch), marks))


def _out_of_turn(branch: Branch, one: Fetched, who: Who, marks: dict[int, Mark]) -> Outcome:
    """Deliver a message that the writer has passed, and leave the writer's offsets unchanged."""
    outcome, batches, staged = Outcome(), list[pa.RecordBatch](), list[Staged]()
    with closing(branch.writer()) as sink:
        try:
            wanted = re.search(branch.namespace, namespace_of(one.data))
            if wanted:
                batches = [placed(one.data, one.partition, one.offsets)]
            for function in branch.functions:
                batches = [out for batch in batches for out in function(batch) if out.num_rows]
            if batches:
                staged.append(sink.stage(batches))
                sink.finish(staged, who, stored(marks))
        except Exception as error:
            with suppress(Exception):
                sink.discard(staged)
            outcome.trouble = trouble_of(error)
    outcome.rows = sum(batch.num_rows for batch in batches)
    outcome.filtered = 0 if batches else 1
    return outcome
