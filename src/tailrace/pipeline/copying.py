"""Copying: the pieces of a namespace read by Spark tasks into the commit log.

A task reads one piece, puts its chunks, and hands back where they are; the driver then commits the piece, once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Event

import pyarrow as pa

from tailrace.adaptors.contract import Piece, Reader
from tailrace.adaptors.registry import Given, make_reader, reader_settings
from tailrace.adaptors.rows import keys_of, meant_for, namespace_of
from tailrace.errors import Closed, NotReady, ObjectMissing, TailraceError
from tailrace.log.parcel import Parcel, pack_up
from tailrace.pipeline.commitlog import CommitLog
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.engine import Engine
from tailrace.pipeline.places import open_topic
from tailrace.pipeline.sparkjob import LOSSES, Lost, in_tasks
from tailrace.pipeline.status import Source, Status
from tailrace.pipeline.trouble import Trouble, trouble_of

PAUSE = 1.0
"""Seconds before something that is away is asked again."""


def copy_piece(
    home: str, topic: str, adaptor: str, settings: Given, piece: Piece, writer: str | None = None
) -> Parcel | Trouble:
    """In a task: read one piece, and put it; perhaps for one writer alone."""
    try:
        opened = open_topic(home, topic)
        reader = make_reader(adaptor, settings)
        try:
            batches = reader.copy(piece)
            batches = batches if writer is None else (_addressed(batch, writer) for batch in batches)
            return pack_up(opened.store, opened.log, opened.described, batches)
        finally:
            reader.close()
    except Exception as error:
        return trouble_of(error)


def _addressed(batch: pa.RecordBatch, writer: str) -> pa.RecordBatch:
    if not keys_of(batch):
        raise NotReady(
            f"{namespace_of(batch)} has no key: changes that the commit log has after a fresh copy of it would count "
            f'twice; fill the writer {writer!r} from the log: fill="log"'
        )
    return meant_for(batch, writer)


class Copying:
    """Copies namespaces, several pieces at a time: for all writers, or afresh for one that came later."""

    def __init__(
        self,
        engine: Engine,
        definition: Definition,
        log: CommitLog,
        status: Status,
        stop: Event,
        writer: str | None = None,
    ) -> None:
        self._engine, self._definition, self._log, self._writer = engine, definition, log, writer
        self._status, self._stop = status, stop

    def plan(self, reader: Reader, namespaces: Sequence[str] | None = None, again: Sequence[str] = ()) -> list[str]:
        """Note the pieces of all namespaces that match and are not known yet, or must be copied again; gives those
        still to be copied."""
        wanted = re.compile(self._definition.source.namespace)
        for namespace in reader.namespaces():
            new = namespace.name not in self._log.phases_for(self._writer)
            new = new and (namespaces is None or namespace.name in namespaces)
            if wanted.search(namespace.name) and (new or namespace.name in again):
                pieces = reader.pieces(namespace.name, self._definition.piece_rows)
                self._log.plan(namespace.name, pieces, self._writer)
                self._status.sources[self._shown(namespace.name)] = Source(rows=namespace.rows)
        return [name for name, p in self._log.phases_for(self._writer).items() if p["phase"] == "copy"]

    def _shown(self, namespace: str) -> str:
        return namespace if self._writer is None else f"{namespace} → {self._writer}"

    def run(self, namespaces: Sequence[str]) -> None:
        """Copy what is not done of these, then let them be followed."""
        waiting: list[tuple[str, int, Piece]] = []
        for name in namespaces:
            pieces = self._log.pieces(name, self._writer)
            shown = self._status.sources.setdefault(self._shown(name), Source())
            shown.pieces, shown.done = len(pieces), sum(done for _, _, done in pieces)
            waiting += [(name, number, piece) for number, piece, done in pieces if not done]
        self._all(waiting)
        for name in namespaces:
            if not self._stop.is_set():
                phase = self._log.phases_for(self._writer)[name]
                self._log.set_phase(name, {**phase, "phase": "sync"}, self._writer)
                self._status.sources[self._shown(name)].phase = "sync"

    def _all(self, waiting: list[tuple[str, int, Piece]]) -> None:
        parallel = self._engine.parallel
        pool = ThreadPoolExecutor(parallel, "tailrace-copy")
        try:
            going: dict[Future[Parcel], tuple[str, int, Piece]] = {}
            while (waiting or going) and not self._stop.is_set():
                while waiting and len(going) < parallel:
                    next_one = waiting.pop(0)
                    going[pool.submit(self._read, next_one[2])] = next_one
                done, _ = wait(going, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    with suppress(Closed):
                        self._commit(*going.pop(future), future.result())
        finally:  # a piece that is read when the run is to end is nobody's: the next run reads it again
            pool.shutdown(wait=not self._stop.is_set(), cancel_futures=True)

    def _read(self, piece: Piece) -> Parcel:
        """One piece; again while what it needs is away.  `Closed` if told to stop meanwhile."""
        losses = 0
        while not self._stop.is_set():
            try:
                found = self._job(piece)
                losses = 0
            except Lost as error:
                losses += 1
                found = Trouble(str(error), "away" if losses < LOSSES else "setup")
            if isinstance(found, Parcel):
                return found
            if found.cause != "away":
                raise TailraceError(f"copying {piece.namespace}: {found.error}")
            self._status.error = found.error
            self._stop.wait(PAUSE)
        raise Closed("the copy was stopped; the next run goes on with it")

    def _job(self, piece: Piece) -> Parcel | Trouble:
        source, log = self._definition.source, self._log.topic
        settings = reader_settings(source.adaptor, source.settings)
        arguments = (self._definition.home, log.name, source.adaptor, settings, piece, self._writer)
        return in_tasks(self._engine.context, copy_piece, [arguments])[0]

    def _commit(self, namespace: str, number: int, piece: Piece, parcel: Parcel) -> None:
        try:
            self._log.commit_piece(number, [parcel])
        except ObjectMissing:  # cleaning took the chunks before they were committed: read the piece again
            parcel = self._read(piece)
            self._log.commit_piece(number, [parcel])
        with self._status.lock:
            self._status.error = ""
            self._status.sources[self._shown(namespace)].done += 1
            self._status.sources[self._shown(namespace)].copied += parcel.records
            self._status.records += parcel.records
