"""Delivery: a range of the commit log through a branch's functions and into its writer.

`deliver` runs in a Spark task with its share of a batch, `deliver_singly` where a batch has failed, and both give small
outcomes: how far they came, how many rows, and what went wrong with which message.  An error is an outcome here, not an
exception: Spark would only try the same again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors import rows as rowform
from tailrace.adaptors.contract import Staged, Who, Writer
from tailrace.adaptors.registry import Given, make_writer
from tailrace.errors import TailraceError
from tailrace.log.fetched import Fetched
from tailrace.log.reader import Reader
from tailrace.log.record import Op
from tailrace.pipeline.deadletters import bury
from tailrace.pipeline.joining import joined
from tailrace.pipeline.offsets import Mark, stored
from tailrace.pipeline.places import open_home, open_topic
from tailrace.pipeline.trouble import Trouble, cause_of, trouble_of

Function = Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""What a branch does with rows: each batch becomes none, one or more."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One way out of the commit log; it can be pickled."""

    pipeline: str
    name: str
    home: str
    topic: str
    adaptor: str
    settings: Given = field(repr=False)
    namespace: str = ".*"
    functions: tuple[Function, ...] = ()
    on_error: str = "stop"

    def writer(self) -> Writer:
        """Its writer, made anew."""
        return make_writer(self.adaptor, self.settings)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition, and what the writer has acknowledged there already."""

    partition: int
    start: int
    end: int
    mark: Mark


@dataclass(slots=True)
class Outcome:
    """How far a task came in each partition (the next offset), and what it did."""

    reached: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    filtered: int = 0
    staged: Staged | None = None
    latest: int = 0
    trouble: Trouble | None = None
    skipped: list[Trouble] = field(default_factory=list)
    commands: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Where a partition stands before a command for a whole namespace: partition → (namespace, command)."""


class Failed(TailraceError):
    """A function or a writer failed for one message; says which."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.error)
        self.trouble = trouble


def deliver(branch: Branch, ranges: Sequence[Range]) -> Outcome:
    """A task's share of a batch, staged in the sink."""
    outcome = Outcome()
    try:
        with closing(branch.writer()) as writer:
            outcome.staged = writer.stage(_through(branch, ranges, outcome))
    except Failed as failed:
        outcome.trouble = failed.trouble
    except Exception as error:
        outcome.trouble = trouble_of(error)
    return outcome


def _through(branch: Branch, ranges: Sequence[Range], outcome: Outcome) -> Iterator[pa.RecordBatch]:
    """The rows of some ranges that the branch wants, after its functions."""
    for part in ranges:
        for fetched in joined(_read(branch, part, outcome, joined)):
            for batch in _transformed(branch, fetched, outcome):
                outcome.rows += batch.num_rows
                yield batch


def _read(
    branch: Branch, part: Range, outcome: Outcome, form: Callable[[Iterable[Fetched]], Iterable[Fetched]] = iter
) -> Iterator[Fetched]:
    """What a branch wants of a range, up to the first command; `form` may join what is read at a time."""
    topic, q = open_topic(branch.home, branch.topic), part.partition
    reader, wanted = Reader(topic.log, {q: part.start}), re.compile(branch.namespace)
    outcome.reached[q] = part.start
    while reader.positions[q] < part.end:
        read = topic.store.run(reader.poll())
        pieces = [piece for fetched in form(read) for piece in _pending(part, fetched)]
        commands = {at: rowform.namespace_of(piece.data) for piece in pieces if (at := _command(piece)) is not None}
        first = min(commands, default=part.end)
        for piece in pieces:
            left = piece.between(part.start, first) if commands else piece
            if not (wanted.search(rowform.namespace_of(left.data)) and rowform.is_meant_for(left.data, branch.name)):
                outcome.filtered += left.data.num_rows
            elif left.data.num_rows:
                outcome.latest = max(outcome.latest, pc.max(left.data.column(0)).value)
                yield left
        if commands:
            outcome.reached[q], outcome.commands[q] = first, (commands[first], "truncate")
            return
        outcome.reached[q] = min(reader.positions[q], part.end)
    outcome.reached[q] = part.end  # what compaction has removed needs no delivery


def _pending(part: Range, fetched: Fetched) -> Iterator[Fetched]:
    """What is inside the range and not yet acknowledged for its namespace."""
    if not fetched.data.num_rows or fetched.offset >= part.end:
        return
    done = part.mark.ahead.get(rowform.namespace_of(fetched.data), -1)
    if (left := fetched.between(done + 1, part.end)).data.num_rows:
        yield left


def _command(fetched: Fetched) -> int | None:
    """The offset of the first command among some rows."""
    at = pc.index(rowform.ops_of(fetched.data), pa.scalar(int(Op.COMMAND), pa.uint8())).as_py()
    return None if at < 0 else fetched.offset_of(int(at))


def _transformed(branch: Branch, fetched: Fetched, outcome: Outcome) -> list[pa.RecordBatch]:
    batches = [fetched.data]
    for function in branch.functions:
        try:
            batches = [out for batch in batches for out in function(batch) if out.num_rows]
        except Exception as error:
            raise Failed(_blame(fetched, error)) from error
    outcome.filtered += fetched.data.num_rows - sum(batch.num_rows for batch in batches)
    return batches


def _blame(fetched: Fetched, error: Exception) -> Trouble:
    namespace = rowform.namespace_of(fetched.data)
    row = min(getattr(error, "row", 0), fetched.data.num_rows - 1)
    id = fetched.data.column("key")[row].as_py()[len(namespace.encode()) + 1 :].decode(errors="replace")
    what = f"{type(error).__name__}: {error}"
    return Trouble(what, cause_of(error), fetched.partition, fetched.offset_of(row), namespace, id)


def deliver_singly(branch: Branch, ranges: Sequence[Range], who: Who, marks: Mapping[int, Mark]) -> Outcome:
    """Messages one at a time, each finished before the next: a loop inside one task, not a job for each."""
    outcome, marks = Outcome(), {q: mark.copy() for q, mark in marks.items()}
    try:
        with closing(branch.writer()) as writer:
            for part in ranges:
                for fetched in _read(branch, part, outcome):
                    _singly(branch, writer, fetched, who, marks, outcome)
                    if outcome.trouble is not None:
                        return outcome
    except Exception as error:
        outcome.trouble = trouble_of(error)
    return outcome


def _singly(
    branch: Branch, writer: Writer, fetched: Fetched, who: Who, marks: dict[int, Mark], outcome: Outcome
) -> None:
    """Some messages of one namespace; stops at the first that cannot be delivered, unless the branch says otherwise."""
    for n in range(fetched.data.num_rows):
        one = fetched.rows(n, 1)
        outcome.reached[one.partition] = one.offset
        trouble = _single(branch, writer, one, who, marks, outcome)
        if trouble is not None and (trouble.cause != "data" or branch.on_error == "stop"):
            outcome.trouble = trouble
            return
        if trouble is not None:
            outcome.skipped.append(trouble)
            if branch.on_error == "dead_letter":  # before it counts as done
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
        batches = _transformed(branch, one, outcome)
        staged += [writer.stage(batches)] if batches else []
        writer.finish(staged, who, stored({**marks, one.partition: after}))
    except Failed as failed:
        return failed.trouble
    except Exception as error:
        with suppress(Exception):
            writer.discard(staged)
        return _blame(one, error)
    outcome.rows += sum(batch.num_rows for batch in batches)
    return None
