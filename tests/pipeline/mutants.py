"""Mutants: a pipeline with one rule taken away.  Each must lose, double or disorder something in some life."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tailrace.adaptors.contract import Changes, Position, Reader
from tailrace.log.write.append import commit
from tailrace.log.write.staged_chunk import StagedChunks, place_staged
from tailrace.pipeline.deliver import batch, claim
from tailrace.pipeline.deliver.batch import StagedBatch
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.outlet import Outlet
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.copying import Copying
from tailrace.pipeline.ingest.following import Receiver, SourceReceiver
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime.trouble import Trouble

Mutant = Callable[[], AbstractContextManager[Any]]


def _patched(target: Any, name: str, new: Any) -> Mutant:
    return lambda: patch.object(target, name, new)


def _following(each: Callable[[SourceReceiver, Reader, Changes], Changes]) -> Mutant:
    """Something is done with changes as soon as the source gives them."""
    follow = SourceReceiver._follow

    def mutant(self: SourceReceiver, receiver: Receiver, once: bool) -> None:
        reader = self._reader
        given = reader.follow
        changed = lambda *some: (each(self, reader, changes) for changes in given(*some))  # noqa: E731
        with patch.object(reader, "follow", changed):
            follow(self, receiver, once)

    return _patched(SourceReceiver, "_follow", mutant)


# --- the source is told too early
def _tell_at_once(self: SourceReceiver, reader: Reader, changes: Changes) -> Changes:
    reader.acknowledge(changes.position)
    return changes


def _tell_heartbeats(self: SourceReceiver, reader: Reader, changes: Changes) -> Changes:
    """An idle source is told at once, though what came before may still wait to be committed."""
    if not changes.rows:
        reader.acknowledge(changes.position)
    return changes


# --- where following starts
@contextmanager
def _begin_after_the_copy() -> Iterator[None]:
    follow = SourceReceiver._follow

    def none_yet(self: Runner, reader: Reader, log: CommitLog) -> None:
        if not log.begun:
            log.begin(None)

    def late(self: SourceReceiver, receiver: Receiver, once: bool) -> None:
        if self._log.position is None:
            self._log._change({}, self._reader.begin([]))
            self.committer._position = self._log.position
        follow(self, receiver, once)

    with patch.object(Runner, "_begin", none_yet), patch.object(SourceReceiver, "_follow", late):
        yield


@contextmanager
def _no_replay_over_the_copy() -> Iterator[None]:
    """Changes from before the copy was done are in it, or so it is thought."""
    copied: dict[str, int] = {}
    run = Copying.run

    def noting(self: Copying, reader: Reader, namespaces: Sequence[str]) -> None:
        run(self, reader, namespaces)
        source = Runner._reader(_Made(self._definition))
        if namespaces:
            copied[self._definition.home] = len(source._shop.log)  # type: ignore[attr-defined]

    def drop(self: SourceReceiver, reader: Reader, changes: Changes) -> Changes:
        known = copied.get(self._log.home.url, -1)
        return Changes([], changes.position) if changes.position <= known else changes

    with patch.object(Copying, "run", noting), _following(drop)():
        yield


class _Made(Runner):
    def __init__(self, definition: Any) -> None:
        self.definition = definition


# --- the commit log
def _position_apart(self: CommitLog, rows: Sequence[pa.RecordBatch], position: Position, **more: Any) -> bool:
    """The data, and in a second write how far the source has been read."""
    if rows:
        _take_in(self, rows, self.position)
    self._change({}, position)
    return True


_take_in = CommitLog.take_in


def _piece_done_apart(self: CommitLog, number: int, parcels: Iterable[StagedChunks]) -> bool:
    """A piece's rows, and in a second write that it is done."""
    placed = self._store.run(place_staged(self.topic.log, parcels))
    if placed is not None:
        self._store.run(commit([placed]))
    return _commit_piece(self, number, [])


_commit_piece = CommitLog.commit_piece


# --- the offset log
def _offsets_first(self: Outlet, batch: StagedBatch, after: Mapping[int, Mark]) -> Trouble | None:
    """The offset log says that a batch is done before the sink has it."""
    before, self.marks = self.marks, dict(after)
    self.save(force=True)
    self.marks = before
    return _finish(self, batch, after)


_finish = Outlet._finish


@contextmanager
def _marks_only() -> Iterator[None]:
    """Where a sink keeps offsets with its data, they are not looked at."""
    with patch.object(claim, "reconciled", lambda marks, kept: dict(marks)):
        yield


@contextmanager
def _command_at_once() -> Iterator[None]:
    """A command is carried out when the first partition stands before it."""
    commands = Outlet._commands

    def early(self: Outlet) -> None:
        self._standing.wide = 1
        commands(self)

    with patch.object(batch, "MAX_RECORDS_PER_PARTITION", 1), patch.object(Outlet, "_commands", early):
        yield


def _not_anew(self: Outlet) -> None:
    """After an error the batch is simply tried again, as if it had not been finished."""
    self._doubtful = False


def _on_regardless(self: Outlet, batch: StagedBatch) -> StagedBatch | None:
    """What was staged ahead of a batch is finished, though that one was not."""
    after = batch.after(self.marks)
    further = self._further(batch, after)
    ahead = self._staged(further) if further else None
    self._finish(batch, after)
    self._doubtful = False
    self.marks = after
    self._account(batch.outcomes)
    return ahead


MUTANTS: Mapping[str, tuple[Mutant, int]] = {
    "source told before the log has it": (_following(_tell_at_once), 7),
    "heartbeat tells past what waits": (_following(_tell_heartbeats), 7),
    "position noted after the ranges are read": (_begin_after_the_copy, 61),
    "replay over a copied range dropped": (_no_replay_over_the_copy, 61),
    "position apart from the data": (_patched(CommitLog, "take_in", _position_apart), 1),
    "piece done apart from its rows": (_patched(CommitLog, "commit_piece", _piece_done_apart), 1),
    "offsets stored before the sink's finish": (_patched(Outlet, "_finish", _offsets_first), 7),
    "the sink's own offsets ignored": (_marks_only, 7),
    "staged ahead of a batch that failed": (_patched(Outlet, "_settled", _on_regardless), 61),
    "a command before all is in": (_command_at_once, 61),
    "a bulk without an answer tried again": (_patched(Outlet, "_again", _not_anew), 61),
}
"""Each with how far apart the points are at which lives end: 1 where it must be a certain one."""
