"""Copying: Spark tasks read the pieces of namespaces into the commit log.

A task reads one unit, which is a piece or many small ones, stores its chunks, and returns where they are.  The driver
then commits the unit, once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import NamedTuple

import pyarrow as pa

from tailrace.adaptors.contract import Piece, Reader
from tailrace.adaptors.registry import Given, make_reader
from tailrace.adaptors.rows.rows import definition_of, keys_of, meant_for, namespace_of
from tailrace.errors import Closed, NotReady, NotThere, ObjectMissing, TailraceError
from tailrace.log.write.staged_chunk import StagedChunks, stage_chunks
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.ingest.commit_log import CommitLog, CopyUnit
from tailrace.pipeline.runtime.engine import SparkEngine
from tailrace.pipeline.runtime.open_topics import open_topic
from tailrace.pipeline.runtime.spark_job import LOSSES, JobLost
from tailrace.pipeline.runtime.status import Status
from tailrace.pipeline.runtime.trouble import Trouble, trouble_of

CUT_AT_ONCE = 200
"""How many namespaces the driver cuts into pieces before tasks copy them."""
RETRY_PAUSE_SECONDS = 1.0
"""Seconds before the driver retries a unit whose source or home is away."""


class CopiedUnit(NamedTuple):
    """The chunks that a task has stored for a unit, and the number of rows of each namespace."""

    parcel: StagedChunks
    rows: dict[str, int]


def copy_unit(
    home: str, topic: str, adaptor: str, settings: Given, pieces: Sequence[Piece], writer: str | None = None
) -> CopiedUnit | Trouble:
    """Called in a task: read these pieces one after the other and store their chunks, for all writers or for `writer`
    alone.  Returns errors as `Trouble`."""
    rows: dict[str, int] = {}
    at = ""

    def batches(reader: Reader) -> Iterator[pa.RecordBatch]:
        nonlocal at
        for piece in pieces:
            at = piece.namespace
            for batch in reader.copy(piece):
                rows[at] = rows.get(at, 0) + batch.num_rows
                if batch.num_rows:
                    yield batch if writer is None else _addressed(batch, writer)
                else:
                    made = definition_of(batch, time.time_ns() // 1_000_000)
                    yield made if writer is None else meant_for(made, writer)

    try:
        opened = open_topic(home, topic)
        reader = make_reader(adaptor, settings)
        try:
            return CopiedUnit(stage_chunks(opened.store, opened.log, opened.described, batches(reader)), rows)
        finally:
            reader.close()
    except Exception as error:
        return replace(trouble_of(error), namespace=at)


def _addressed(batch: pa.RecordBatch, writer: str) -> pa.RecordBatch:
    if not keys_of(batch):
        raise NotReady(
            f"{namespace_of(batch)} has no key: changes that the commit log has after a fresh copy of it would count "
            f'twice; fill the writer {writer!r} from the log: fill="log"'
        )
    return meant_for(batch, writer)


class Copying:
    """Copies namespaces, several units at a time: for all writers, or afresh for one writer that was added later."""

    def __init__(
        self,
        engine: SparkEngine,
        definition: Definition,
        log: CommitLog,
        status: Status,
        stop: Event,
        writer: str | None = None,
    ) -> None:
        self._engine, self._definition, self._log, self._writer = engine, definition, log, writer
        self._status, self._stop = status, stop
        self._uncut: dict[str, int | None] = {}
        """The namespaces to be cut into pieces, with their approximate number of rows."""

    def plan(self, reader: Reader, namespaces: Sequence[str] | None = None, again: Sequence[str] = ()) -> list[str]:
        """Return the namespaces to be copied: those whose copy is not complete, and of the matching ones those that are
        new and those in `again`.  With `namespaces`, only these count as new.  Cuts the first ones into pieces."""
        wanted = re.compile(self._definition.source.namespace)
        known = self._log.phases_for(self._writer)
        self._uncut = {}
        there = reader.namespaces()
        if self._writer is None and namespaces is None:
            self._log.complete_phases(set(known) - {namespace.name for namespace in there})  # dropped since
        for namespace in there:
            new = namespace.name not in known and (namespaces is None or namespace.name in namespaces)
            if wanted.search(namespace.name) and (new or namespace.name in again):
                self._uncut[namespace.name] = namespace.rows
        begun = [name for name, p in known.items() if p["phase"] == "copy" and name not in self._uncut]
        found = [*begun, *self._uncut]
        self._cut(reader, list(self._uncut)[:CUT_AT_ONCE])  # while Spark starts
        return found

    def _shown(self, namespace: str) -> str:
        return namespace if self._writer is None else f"{namespace} → {self._writer}"

    def run(self, reader: Reader, namespaces: Sequence[str]) -> None:
        """Copy the units of these namespaces that are not done, then set their phase to sync.  Blocks until all are
        copied or the run is stopped.  Cuts some namespaces into pieces while tasks copy others."""
        for name in namespaces:
            shown = self._status.source(self._shown(name))
            shown.phase, shown.pieces, shown.done = "copy", 0, 0
        self._all(self._units(reader, namespaces))
        known = self._log.phases_for(self._writer)
        done = {name: {**known[name], "phase": "sync"} for name in namespaces if name in known}
        if done and not self._stop.is_set():
            self._log.set_phases(done, self._writer)
            for name in done:
                self._status.source(self._shown(name)).phase = "sync"

    def _units(self, reader: Reader, namespaces: Sequence[str]) -> Iterator[CopyUnit]:
        """The units of these namespaces that are not done, each once."""
        given: set[int] = set()
        for at in range(0, len(namespaces), CUT_AT_ONCE):
            some = list(namespaces[at : at + CUT_AT_ONCE])
            self._cut(reader, [name for name in some if name in self._uncut])
            some = [name for name in some if name in self._log.phases_for(self._writer)]
            units = [unit for unit in self._log.units(some, self._writer) if unit.number not in given]
            given.update(unit.number for unit in units)
            for unit in units:
                for piece in unit.pieces:
                    shown = self._status.source(self._shown(piece.namespace))
                    shown.pieces += 1
                    shown.done += unit.done
            yield from (unit for unit in units if not unit.done)

    def _cut(self, reader: Reader, namespaces: Sequence[str]) -> None:
        """Cut namespaces into pieces, and store these in the commit log's items."""
        planned: dict[str, list[Piece]] = {}
        for name in namespaces:
            self._status.source(self._shown(name)).rows = self._uncut.pop(name)
            with suppress(NotThere):  # dropped since it was listed
                planned[name] = reader.pieces(name, self._definition.piece_rows)
        if planned:
            self._log.plan_all(planned, self._writer, self._definition.piece_rows)

    def _all(self, units: Iterator[CopyUnit]) -> None:
        parallel = self._engine.parallel
        pool = ThreadPoolExecutor(parallel, "tailrace-copy")
        try:
            going: dict[Future[CopiedUnit], CopyUnit] = {}
            next_one = next(units, None)
            while (next_one is not None or going) and not self._stop.is_set():
                while next_one is not None and len(going) < parallel:
                    going[pool.submit(self._read, next_one)] = next_one
                    next_one = next(units, None)
                done, _ = wait(going, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    with suppress(Closed):
                        self._commit(going.pop(future), future.result())
        finally:  # a unit that is being read when the run ends is not committed: the next run reads it again
            pool.shutdown(wait=not self._stop.is_set(), cancel_futures=True)

    def _read(self, unit: CopyUnit) -> CopiedUnit:
        """Have a task read a unit, and retry while the source or the home is away.  `Closed` if the run is stopped."""
        losses = 0
        while not self._stop.is_set():
            try:
                found = self._job(unit)
                losses = 0
            except JobLost as error:
                losses += 1
                found = Trouble(str(error), "away" if losses < LOSSES else "setup")
            if isinstance(found, CopiedUnit):
                return found
            if found.cause != "away":
                raise TailraceError(f"copying {found.namespace or unit.pieces[0].namespace}: {found.error}")
            self._status.error = found.error
            self._stop.wait(RETRY_PAUSE_SECONDS)
        raise Closed("the copy was stopped; the next run goes on with it")

    def _job(self, unit: CopyUnit) -> CopiedUnit | Trouble:
        source, log = self._definition.source, self._log.topic
        work = (self._definition.home, log.name, source.adaptor, source.checked(), unit.pieces, self._writer)
        return self._engine.tasks(copy_unit, [work])[0]

    def _commit(self, unit: CopyUnit, copied: CopiedUnit) -> None:
        try:
            self._log.commit_piece(unit.number, [copied.parcel])
        except ObjectMissing:  # the cleaner has removed the chunks before they were committed
            copied = self._read(unit)
            self._log.commit_piece(unit.number, [copied.parcel])
        self._status.error = ""
        for piece in unit.pieces:
            self._status.source(self._shown(piece.namespace)).done += 1
        for name, count in copied.rows.items():
            self._status.source(self._shown(name)).copied += count
        self._status.records += copied.parcel.records
