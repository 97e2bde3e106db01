"""Reach: whether Spark's tasks see the same folders as the driver, under the same paths.

A folder on the driver's host is another folder, or none, on another host.  A task there would stage files, or store
chunks of the commit log, where no process looks for them, and the driver would count them as delivered.  So the driver
leaves a mark in the home, the source and every sink, and each process that runs tasks checks that it sees all of them
before its first row.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import closing
from dataclasses import dataclass, field

from tailrace.adaptors.contract import End
from tailrace.adaptors.registry import Given, make_reader, make_writer
from tailrace.coordination import reach_marks
from tailrace.errors import NotReady, StorageError, TailraceError, Unavailable
from tailrace.home import Home, is_there, shown
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.runtime.open_topics import open_home

_seen: set[tuple[int, str]] = set()
"""The runs whose marks this process has all seen, by process id and mark: a forked process checks for itself."""


@dataclass(frozen=True, slots=True)
class MarkedEnd:
    """A source or sink of a pipeline: `writer` is the sink's name, None for the source."""

    writer: str | None
    adaptor: str
    settings: Given = field(repr=False)

    def made(self) -> End:
        """Make the reader or writer of this end, to leave or see its mark."""
        make = make_reader if self.writer is None else make_writer
        return make(self.adaptor, self.settings)

    def who(self, pipeline: str) -> str:
        """The name under which the driver leaves the mark at this end."""
        return f"{pipeline}.{self.writer}" if self.writer is not None else f"{pipeline}-source"

    def __str__(self) -> str:
        return "the source" if self.writer is None else f"the sink {self.writer!r}"


@dataclass(frozen=True, slots=True)
class Reach:
    """The mark of one run, and where it is; it can be pickled."""

    pipeline: str
    home: str
    mark: str
    ends: tuple[MarkedEnd, ...]

    def check(self) -> None:
        """Called in a task: raise `NotReady` if this process does not see the mark everywhere.  Checks once per
        process."""
        if (os.getpid(), self.mark) in _seen:
            return
        if not is_there(self.home) or not open_home(self.home).store.run(reach_marks.sees(self.pipeline, self.mark)):
            raise self._unseen(
                f"the home {shown(self.home)}",
                "use a home that all of them reach (s3://…), or a folder that all of them have mounted, with locks",
            )
        for end in self.ends:
            with closing(end.made()) as made:
                if not made.sees_mark(end.who(self.pipeline), self.mark):
                    raise self._unseen(f"the place of {end}", "give it a path that all of them have mounted")
        _seen.add((os.getpid(), self.mark))

    def _unseen(self, what: str, remedy: str) -> NotReady:
        return NotReady(
            f"a Spark worker on {socket.gethostname()} does not see what the driver has just written to {what} of the "
            f"pipeline {self.pipeline!r}: under that path it has another folder, or none; {remedy}, or run on one "
            "machine (--master 'local[*]').  Nothing was read or written there"
        )


def leave_marks(definition: Definition, home: Home) -> Reach:
    """Called on the driver, once a run: leave a new mark in the home and at every end."""
    source, mark = definition.source, secrets.token_hex(16)
    ends = (
        MarkedEnd(None, source.adaptor, source.checked()),
        *(MarkedEnd(sink.name, sink.adaptor, sink.checked()) for sink in definition.sinks),
    )
    home.store.run(reach_marks.leave(definition.name, mark))
    for end in ends:
        with closing(end.made()) as made:
            made.leave_mark(end.who(definition.name), mark)
    return Reach(definition.name, definition.home, mark, ends)


def refusal(reach: Reach | None) -> TailraceError | None:
    """The error that keeps this process from running a task; None if there is none."""
    try:
        if reach is not None:
            reach.check()
    except StorageError as error:
        return Unavailable(str(error))
    except Exception as error:  # another library's exception may not be picklable
        return error if isinstance(error, NotReady) else NotReady(f"{type(error).__name__}: {error}")
    return None
