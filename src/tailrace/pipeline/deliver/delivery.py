"""Delivery: reads ranges of the commit log, passes them through a branch's functions, and stages them in its writer.

`deliver` runs in a Spark task with its share of a batch and returns a small outcome: how far it came, how many rows,
and what went wrong with which message.  An error is part of the outcome, not an exception: Spark would only retry the
task.  `redelivery` does the same for a batch that has failed.

A command concerns a whole namespace and is in every partition: rows behind it must not be visible before it is carried
out.  With a job for the rows before each command, hundreds of commands would take hundreds of jobs.  So a task passes a
command that all its partitions have reached, and stages the rows between two commands as a step of its own.  The driver
finishes the steps, and carries out the commands between them, in the order of the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.contract import Staged, Writer
from tailrace.adaptors.registry import Given, make_writer
from tailrace.adaptors.rows.command import Command, commands_of
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.record_key import id_of
from tailrace.adaptors.rows.rows import is_meant_for, namespace_of, ops_of
from tailrace.coordination.failure import OnError, cause_of
from tailrace.errors import TailraceError
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.log.record import Op
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.functions.calls import Function
from tailrace.pipeline.functions.pretty import collecting
from tailrace.pipeline.ingest.coalesce import joined
from tailrace.pipeline.runtime.open_topics import open_topic
from tailrace.pipeline.runtime.trouble import Trouble, trouble_of


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as tasks need it: from the commit log through functions to one writer; it can be pickled."""

    pipeline: str
    name: str
    home: str
    topic: str
    adaptor: str
    settings: Given = field(repr=False)
    namespace: str = ".*"
    functions: tuple[Function, ...] = ()
    on_error: OnError = "stop"
    redeliver: str = "halves"

    def writer(self) -> Writer:
        """Make a new writer for the delivery of this branch."""
        return make_writer(self.adaptor, self.settings)


@dataclass(frozen=True, slots=True)
class DeliveryRange:
    """The offsets of one partition to deliver, and the writer's mark there."""

    partition: int
    start: int
    end: int
    mark: Mark


@dataclass(slots=True)
class Outcome:
    """The result of a task: `reached` has the next offset of each partition."""

    reached: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    filtered: int = 0
    staged: Staged | None = None
    latest: int = 0
    trouble: Trouble | None = None
    skipped: list[Trouble] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    """The text that functions have printed in the task, for the driver to print."""
    commands: dict[int, tuple[str, Command]] = field(default_factory=dict)
    """The partitions that stand before a command: partition → (namespace, command)."""
    steps: list[Outcome] = field(default_factory=list)
    """The earlier outcomes of the same task: each ends before a command that all partitions of the task have
    reached."""
    left: list[list[DeliveryRange]] = field(default_factory=list)
    """The spans that a redelivery has yet to deliver, the next one last."""


class Failed(TailraceError):
    """A function has failed for a message, which `trouble` names."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.error)
        self.trouble = trouble


def printing(function: Callable[..., Outcome], *work: Any) -> Outcome:
    """Call `deliver` or `redeliver` in a task, and put the text that functions print into its outcome."""
    with collecting() as printed:
        outcome = function(*work)
    outcome.printed = printed
    return outcome


def deliver(branch: Branch, ranges: Sequence[DeliveryRange], past: int = 0) -> Outcome:
    """Stage a task's share of a batch in the sink, passing at most `past` commands.  Errors are in the outcome."""
    outcome, steps = Outcome(), list[Outcome]()
    try:
        with closing(branch.writer()) as writer:
            readings = [Reading(branch, part, joined) for part in ranges]
            outcome.staged = writer.stage(_rows(branch, readings, outcome))
            while len(steps) < past and _stand_together(readings, outcome):
                steps.append(outcome)
                outcome = Outcome()
                for reading in readings:
                    reading.pass_command()
                outcome.staged = writer.stage(_rows(branch, readings, outcome))
    except Failed as failed:
        outcome.trouble = failed.trouble
    except Exception as error:
        outcome.trouble = trouble_of(error)
    outcome.steps = steps
    return outcome


def _stand_together(readings: Sequence[Reading], outcome: Outcome) -> bool:
    """Whether all partitions of a task stand before the same command."""
    return len(outcome.commands) == len(readings) and len(set(outcome.commands.values())) == 1


def through(branch: Branch, ranges: Sequence[DeliveryRange], outcome: Outcome) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges that the branch wants, after its functions."""
    return _rows(branch, [Reading(branch, part, joined) for part in ranges], outcome)


def _rows(branch: Branch, readings: Iterable[Reading], outcome: Outcome) -> Iterator[pa.RecordBatch]:
    for reading in readings:
        for fetched in joined(reading.until_command(outcome)):
            for batch in transformed(branch, fetched, outcome):
                outcome.rows += batch.num_rows
                yield batch


def read_pending(branch: Branch, part: DeliveryRange, outcome: Outcome) -> Iterator[Fetched]:
    """The rows of a range that the branch wants, up to the first command."""
    return Reading(branch, part).until_command(outcome)


class Reading:
    """Reads the rows of a range that a branch wants, from command to command.  `form` may join runs that were read."""

    def __init__(
        self, branch: Branch, part: DeliveryRange, form: Callable[[Iterable[Fetched]], Iterable[Fetched]] = iter
    ) -> None:
        self._branch, self._part, self._form = branch, part, form
        self._topic = open_topic(branch.home, branch.topic)
        self._reader = Reader(self._topic.log, {part.partition: part.start})
        self._wanted = re.compile(branch.namespace)
        self._given = self._read = part.start
        """The offsets behind the last row that was yielded, and behind the last one that was read."""
        self._pieces: list[Fetched] = []
        self._commands: list[tuple[int, str, Command]] = []
        """The rows that were read last, and the commands in them that are not passed yet, with offset and namespace."""

    def until_command(self, outcome: Outcome) -> Iterator[Fetched]:
        """The rows before the next command or the end of the range; the outcome's `commands` says which it was."""
        q = self._part.partition
        outcome.reached[q] = self._given
        while True:
            end = self._commands[0][0] if self._commands else self._read
            yield from self._between(self._given, end, outcome)
            outcome.reached[q] = self._given = end
            if self._commands:
                outcome.commands[q] = self._commands[0][1:]
                return
            if end >= self._part.end:
                return
            self._poll()

    def pass_command(self) -> None:
        """Continue behind the command before which it stands."""
        self._given = self._commands.pop(0)[0] + 1

    def _poll(self) -> None:
        fetched = self._topic.store.run(self._reader.poll())
        self._pieces = [piece for some in self._form(fetched) for piece in _pending(self._part, some)]
        self._commands = sorted(command for piece in self._pieces for command in _commands(piece))
        # The reader's position also passes offsets that compaction has removed.
        self._read = min(self._reader.positions[self._part.partition], self._part.end)

    def _between(self, start: int, end: int, outcome: Outcome) -> Iterator[Fetched]:
        for piece in self._pieces if start < end else ():
            left = piece.between(start, end)
            if not (self._wanted.search(namespace_of(left.data)) and is_meant_for(left.data, self._branch.name)):
                outcome.filtered += left.data.num_rows
            elif left.data.num_rows:
                outcome.latest = max(outcome.latest, pc.max(left.data.column(0)).value)
                yield left


def _pending(part: DeliveryRange, fetched: Fetched) -> Iterator[Fetched]:
    """The rows that are inside the range and not yet acknowledged for their namespace."""
    if not fetched.data.num_rows or fetched.offset >= part.end:
        return
    done = part.mark.ahead.get(namespace_of(fetched.data), -1)
    if (left := fetched.between(done + 1, part.end)).data.num_rows:
        yield left


def _commands(fetched: Fetched) -> Iterator[tuple[int, str, Command]]:
    """The commands among these rows, each with its offset and its namespace."""
    for row, command in commands_of(fetched.data):
        yield fetched.offset_of(row), namespace_of(fetched.data), command


def transformed(branch: Branch, fetched: Fetched, outcome: Outcome) -> list[pa.RecordBatch]:
    """Pass rows, with their places in the log, through a branch's functions.

    For a namespace without rows it returns a batch without rows, which has the columns."""
    whole, fetched = fetched, _without_definitions(fetched)
    batches = [placed(fetched.data, fetched.partition, fetched.offsets)] if fetched.data.num_rows else []
    for function in branch.functions:
        try:
            batches = [out for batch in batches for out in function(batch) if out.num_rows]
        except Exception as error:
            raise Failed(blame(fetched, error)) from error
    outcome.filtered += whole.data.num_rows - sum(batch.num_rows for batch in batches)
    return batches or (_defined(branch, whole.data.slice(0, 0)) if whole is not fetched else [])


def _without_definitions(fetched: Fetched) -> Fetched:
    kept = pc.not_equal(ops_of(fetched.data), pa.scalar(int(Op.NOOP), pa.uint8()))
    if pc.all(kept).as_py():
        return fetched
    return Fetched(fetched.partition, fetched.offset, fetched.data.filter(kept), fetched.offsets.filter(kept))


def _defined(branch: Branch, empty: pa.RecordBatch) -> list[pa.RecordBatch]:
    """An empty batch with the columns that a branch's functions make; no batch if it has a user's function, whose
    columns are unknown before it gets a row, or if a function refuses the columns: it will refuse the first row, too.
    """
    batches = [empty]
    for function in branch.functions:
        if hasattr(function, "function"):
            return []
        try:
            batches = [out for batch in batches for out in function(batch)]
        except Exception:
            return []
    return batches


def blame(fetched: Fetched, error: Exception) -> Trouble:
    """The trouble for an error that one message of the commit log has caused: it names the message."""
    namespace = namespace_of(fetched.data)
    row = min(getattr(error, "row", 0), fetched.data.num_rows - 1)
    id = id_of(fetched.data.column("key")[row].as_py(), namespace).decode(errors="replace")
    what = f"{type(error).__name__}: {error}"
    return Trouble(what, cause_of(error), fetched.partition, fetched.offset_of(row), namespace, id)
