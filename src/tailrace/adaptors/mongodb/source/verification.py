"""Verification: whether a replica set is the one whose position is to be gone on from, and still has it.

Without it another replica set, or one that was restored from a backup, would be followed from a moment that means
nothing there, and what it changed before would be skipped in silence (docs/decisions/033-went-back-in-time.md)."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.errors import AFRESH, HISTORY_LOST, code_of
from tailrace.adaptors.mongodb.source.change_stream import ChangeStream
from tailrace.adaptors.mongodb.source.position import Point
from tailrace.errors import PositionLost


def verify(deployment: Deployment, point: Point) -> None:
    """Raise `PositionLost` where a position is not one of this replica set."""
    deployment.check_replicated()
    _check_identity(deployment, point)
    _check_time(deployment, point)
    if point.anchor and point.anchor != point.token:
        _check_anchor(deployment, point)


def _check_identity(deployment: Deployment, point: Point) -> None:
    now = deployment.identity()
    if point.set and now and point.set != now:
        raise PositionLost(
            f"MongoDB at {deployment.where} is another replica set (id {now}) than the one that was copied (id "
            f"{point.set}); {AFRESH}, or let the uri name the old one"
        )


def _check_time(deployment: Deployment, point: Point) -> None:
    now = deployment.now()
    if now < point.time:
        raise PositionLost(
            f"MongoDB at {deployment.where} went back in time, as after a restore from a backup: its oplog ends at "
            f"{now.seconds}.{now.counter}, and the pipeline has read it up to {point.time.seconds}."
            f"{point.time.counter}; {AFRESH}"
        )


def _check_anchor(deployment: Deployment, point: Point) -> None:
    """See that the oplog has the last change that was read.  The server checks that only if the stream begins there,
    not at a later moment at which nothing happened."""
    from pymongo.errors import OperationFailure

    stream = ChangeStream(deployment, replace(point, token=point.anchor), images=False, rows=1)
    with contextlib.closing(stream), deployment.guarded("looking for the last change that was read"):
        stream.open()
        try:
            stream.next(100)
        except OperationFailure as error:
            if code_of(error) != HISTORY_LOST:  # older than the oplog, though the position is not: nothing to compare
                raise
