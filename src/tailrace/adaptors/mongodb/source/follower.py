"""The follower: turns the change stream's events into changes, each with the position after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence, Set
from dataclasses import replace
from typing import Any

from tailrace.adaptors.contract import DROP, TRUNCATE, Changes
from tailrace.adaptors.mongodb.deployment import NEVER, Deployment, OperationTime
from tailrace.adaptors.mongodb.errors import TOO_LARGE_EVENT, code_of
from tailrace.adaptors.mongodb.settings import MongoSource
from tailrace.adaptors.mongodb.source.change_stream import ChangeStream, StreamBatch
from tailrace.adaptors.mongodb.source.collections import is_read
from tailrace.adaptors.mongodb.source.documents import Change
from tailrace.adaptors.mongodb.source.fragments import Fragments
from tailrace.adaptors.mongodb.source.position import Point, time_of
from tailrace.adaptors.mongodb.source.row_batches import RowBatches
from tailrace.adaptors.mongodb.source.verification import verify
from tailrace.errors import NotReady
from tailrace.log.record import Op

BEAT_MS = 900
"""Milliseconds after which the follower yields empty changes if nothing happened."""
COUNT_BITS = 31
"""Bits of a transaction's number for the operation within its second; the seconds fill the other bits until 2106."""
_OPS = {"insert": Op.INSERT, "replace": Op.UPDATE, "update": Op.UPDATE, "delete": Op.DELETE}


class Follower:
    """Reads one change stream.  The follower reports an unknown collection in `appeared`.  If the pipeline then plans
    its copy, the follower follows it, else it skips the collection until that is dropped."""

    def __init__(
        self,
        deployment: Deployment,
        settings: MongoSource,
        point: Point,
        namespaces: Sequence[str],
        planned: Set[str] = frozenset(),
    ) -> None:
        self._deployment, self._settings, self._planned = deployment, settings, planned
        self._point, self._followed = point, set(namespaces)
        self._passed_over: set[str] = set()
        self._images = settings.images
        self._gathered, self._fragments = RowBatches(settings.shape), Fragments()
        self._until, self._signs = NEVER, 0

    def changes(self) -> Generator[Changes]:
        """Yield the changes, for ever; raise `PositionLost` if the deployment no longer has the position."""
        verify(self._deployment, self._point)
        self._until = self._deployment.now()
        while True:
            stream = ChangeStream(self._deployment, self._point, images=self._images, rows=self._settings.batch_rows)
            try:
                stream.open()
                yield from self._read(stream)
            finally:
                stream.close()

    def _read(self, stream: ChangeStream) -> Generator[Changes]:
        """Yield the changes of one stream, until it must be opened again at the current position."""
        while True:
            batch = self._next(stream)
            if batch is None:
                return
            held = 0
            for event, size in batch.events:
                held += size
                whole = self._fragments.join(event)
                if whole is not None:
                    yield from self._event(whole)
                    if held >= self._settings.batch_bytes:
                        yield self._said()
                        held = 0
            if not self._fragments:
                self._move(batch.token)
            yield self._said(caught_up=self._point.time >= self._until)
            if batch.ended:
                return

    def _next(self, stream: ChangeStream) -> StreamBatch | None:
        """Return the next batch; None if the stream must be opened again without pre-images."""
        from pymongo.errors import OperationFailure

        with self._deployment.guarded("following its changes"):
            try:
                return stream.next(BEAT_MS)
            except OperationFailure as error:
                if code_of(error) != TOO_LARGE_EVENT:
                    raise
                if not self._images:
                    raise NotReady(
                        f"MongoDB at {self._deployment.where} has a change over 16 MB, which this version cannot send; "
                        "6.0.9 and newer can: upgrade the server"
                    ) from None
        # The documents before and after the change are too large together, and the follower can do without the first.
        self._images, self._fragments = False, Fragments()
        return None

    def _said(self, *, caught_up: bool = False, **more: Any) -> Changes:
        """Return the gathered rows with the current position.

        Until the follower has caught up, each position differs from the one before: a run that only catches up would
        take an unchanged position for the end."""
        rows, position = self._gathered.take(), self._point.stored()
        at = self._gathered.committed_at if rows else 0
        if not caught_up:
            self._signs += 1
            position["more"] = self._signs
        return Changes(rows, position, at, caught_up=caught_up, **more)

    def _move(self, token: str, *, seen: bool = False) -> None:
        at = time_of(token) or self._point.time
        anchor = token if seen else self._point.anchor
        self._point = replace(self._point, token=token, time=max(at, self._point.time), anchor=anchor)

    # -- events
    def _event(self, event: dict[str, Any]) -> Generator[Changes]:
        kind, where, token = event["operationType"], event.get("ns", {}), event["_id"]["_data"]
        if "coll" in where and is_read(where["db"], where["coll"]):
            namespace = f"{where['db']}.{where['coll']}"
            if kind in _OPS:
                yield from self._document(namespace, event)
            elif kind == "drop":
                yield from self._drop(namespace, event)
        if kind == "rename":
            yield from self._rename(event)
        self._move(token, seen=True)

    def _document(self, namespace: str, event: dict[str, Any]) -> Generator[Changes]:
        if namespace not in self._followed:
            if namespace in self._passed_over:
                return
            yield from self._appear([namespace])
            if namespace not in self._followed:
                return
        op = _OPS[event["operationType"]]
        whole = event.get("fullDocument" if op != Op.DELETE else "fullDocumentBeforeChange")
        transaction, position = self._place(event)
        if whole is None and op != Op.DELETE:
            return  # The document is deleted by now, and the stream has that delete later.
        at, gone = _committed_at(event), _gone(event)
        change = Change(op, event["documentKey"]["_id"], whole, at, transaction, position, gone)
        self._gathered.add(namespace, change)

    def _place(self, event: dict[str, Any]) -> tuple[int, int]:
        """Return the moment of an event's transaction as one number, and the event's ordinal among its moment's."""
        moment = OperationTime(event["clusterTime"].time, event["clusterTime"].inc)
        ordinal = self._point.ordinal + 1 if moment == self._point.last else 0
        self._point = replace(self._point, last=moment, ordinal=ordinal)
        return moment.seconds << COUNT_BITS | moment.counter, ordinal

    def _appear(self, namespaces: Sequence[str]) -> Generator[Changes]:
        """Report new collections, which the pipeline copies; then follow those whose copy was planned."""
        if self._gathered:
            yield self._said()
        yield self._said(appeared=list(namespaces))
        for name in namespaces:
            (self._followed if name in self._planned else self._passed_over).add(name)

    def _drop(self, namespace: str, event: dict[str, Any]) -> Generator[Changes]:
        """Yield a truncate and a drop of a collection; the truncate is for sinks that drop nothing.

        A later collection of the same name is followed from its first document on."""
        self._passed_over.discard(namespace)
        if namespace in self._followed:
            self._gathered.command(namespace, TRUNCATE, _committed_at(event))
            self._gathered.command(namespace, DROP, _committed_at(event))
            yield self._said()
            yield self._said(ended=[namespace])

    def _rename(self, event: dict[str, Any]) -> Generator[Changes]:
        """Drop the old name, and have the new one copied, because no change has its documents.

        The position stays before the event until the copy is done, so a run after a crash repeats all of it."""
        old, new = event["ns"], event["to"]
        yield from self._drop(f"{old['db']}.{old['coll']}", event)
        if not is_read(new["db"], new["coll"]):
            return
        name = f"{new['db']}.{new['coll']}"
        if name in self._followed:
            self._gathered.command(name, TRUNCATE, _committed_at(event))
            yield self._said()
            yield self._said(altered=[name])
        else:
            yield from self._appear([name])


def _gone(event: dict[str, Any]) -> list[str]:
    """Return the fields that an update removed, and all fields of the pre-image if the event has one."""
    removed = (event.get("updateDescription") or {}).get("removedFields", ())
    return [*(name for name in removed if "." not in name), *(event.get("fullDocumentBeforeChange") or ())]


def _committed_at(event: dict[str, Any]) -> int:
    """Return when a change was committed, in milliseconds since 1970; servers before 6.0 say only the second."""
    wall = event.get("wallTime")
    return int(wall) if wall is not None else int(event["clusterTime"].time) * 1000
