"""Verification: checks that a position belongs to this replica set, and that its oplog still has it.

Without these checks the follower could follow another replica set, or one restored from a backup, from a moment that
means nothing there, and silently skip its changes before that (docs/decisions/033-went-back-in-time.md)."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.errors import AFRESH, HISTORY_LOST, code_of
from tailrace.adaptors.mongodb.source.change_stream import ChangeStream
from tailrace.adaptors.mongodb.source.position import Point
from tailrace.errors import PositionLost


def verify(deployment: Deployment, point: Point) -> None:
    """Raise `PositionLost` if a position is not one of this replica set's oplog."""
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
    """Raise `PositionLost` if the oplog lacks the last change that was read.

    The server itself checks that only for a stream that begins at a change, not for one that begins at a later moment
    without a change."""
    from pymongo.errors import OperationFailure

    stream = ChangeStream(deployment, replace(point, token=point.anchor), images=False, rows=1)
    with contextlib.closing(stream), deployment.guarded("looking for the last change that was read"):
        stream.open()
        try:
            stream.next(100)
        except OperationFailure as error:
            # The anchor may be older than the oplog though the position is not: then there is nothing to compare.
            if code_of(error) != HISTORY_LOST:
                raise
