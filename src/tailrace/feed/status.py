"""Status of the index: how far it is, which process indexes, which error it has; and a wait until it has caught up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination.lease import Lease
from tailrace.errors import TimedOut
from tailrace.feed.indexing import LEASE, captured
from tailrace.feed.reading import tail_of
from tailrace.feed.state import look, partitions_of
from tailrace.storage.calls import Steps, Store
from tailrace.storage.changes import Changes
from tailrace.storage.tables import Item

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition of the index: its active epoch, the batches in that, and the checkpoint at the tail."""

    partition: int
    epoch: int
    batches: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How far the index of an event store is, which process indexes, and what is wrong."""

    partitions: tuple[PartitionStatus, ...]
    complete: bool
    """Whether the events from before the first indexing are in the index."""
    read_at: int | None
    """When changes were last indexed, in milliseconds since 1970."""
    behind: int | None
    """How many changes are not indexed yet; None on S3 and DynamoDB, and before the first indexing."""
    holder: Mapping[str, Any]
    """The process that indexes: host and pid; empty if none does."""
    trouble: Mapping[str, Any] | None
    """Why indexing fails: error, kind, and since when (`at`); None if it does not."""


def status(store: Store, *, embedded: bool) -> IndexStatus:
    """Read the status of a store's index.  `embedded` says that a process of the home indexes, and not a Lambda."""
    state = store.run(look())
    partitions = tuple(store.run(_partition(number)) for number in range(partitions_of(state)))
    token = None if state is None else state.get("token")
    return IndexStatus(
        partitions,
        complete=bool(state and state["filled"]) or not embedded,
        read_at=None if token is None else token["at"] * 1000,
        behind=_behind(captured(store), token) if embedded and token is not None else None,
        holder=Lease(store, LEASE).holder() if embedded else {},
        trouble=None if state is None else state.get("trouble"),
    )


def _partition(number: int) -> Steps[PartitionStatus]:
    return PartitionStatus(number, *(yield from tail_of(number)))


def _behind(changes: Changes, token: Any) -> int:
    return max(_end(changes) - _reached(token), 0)


def _end(changes: Changes) -> int:
    """The sequence number of the newest change; a home's tables number their changes without gaps."""
    return max((int(changes.latest(shard.id)[1] or 0) for shard in changes.shards()), default=0)


def _reached(token: Any) -> int:
    return max((int(place.get("after") or 0) for place in token["shards"]), default=0)


def catch_up(store: Store, failure: Callable[[], BaseException | None], seconds: float) -> None:
    """Wait until some process has indexed every event that the store has at the time of the call.

    `TimedOut` after `seconds`; raises the error that `failure` returns, if it returns one."""
    changes = captured(store)
    wanted, until = _end(changes), time.monotonic() + seconds
    while not _has(store.run(look()), changes.stream, wanted):
        if (error := failure()) is not None:
            raise error
        if time.monotonic() >= until:
            raise TimedOut(
                f"the index of the feed lacks events that were appended {seconds:g} s ago; "
                "`tailrace events index status` says which process indexes, and what is wrong, if anything is"
            )
        time.sleep(LOOK_SECONDS)


def _has(state: Item | None, stream: str, wanted: int) -> bool:
    if state is None or state.get("stream") != stream or not state["filled"] or state.get("token") is None:
        return False
    return _reached(state["token"]) >= wanted
