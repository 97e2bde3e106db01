"""Stored checkpoints of the feed's groups: lists, shows, resets and overrides them, and settles their dead letters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import dead_letters, units
from tailrace.coordination.dead_letters import DeadLetter
from tailrace.coordination.lease import TTL_SECONDS
from tailrace.coordination.names import check_name
from tailrace.errors import UnknownPartition
from tailrace.events.append import commit
from tailrace.events.reading import read_tip
from tailrace.events.store import Events
from tailrace.feed.checkpoint import place
from tailrace.feed.consumer import FeedProgress, checkpoint_stream, progress_of, progress_part, start_of, units_of
from tailrace.feed.index import epoch_stream
from tailrace.feed.reading import IndexReader, tail_of
from tailrace.feed.state import look, partitions_of
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Item


@dataclass(frozen=True, slots=True)
class PartitionCheckpoint:
    """How far a group is in one partition of the feed."""

    partition: int
    checkpoint: int
    within: int
    """How many events behind the checkpoint are already handled."""
    tail: int
    """The checkpoint at the end of the feed."""
    behind: int
    """How many batches of events are not handled yet."""
    member: str | None
    """The member that reads this partition; None if no member does."""
    progress_age: float | None
    """Seconds since the member last made progress or reached the tail; None if no member reads this partition."""
    error: str
    """The error that stops the member; empty if there is none."""


@dataclass(frozen=True, slots=True)
class GroupCheckpoint:
    """How far a group is in every partition, and the number of its dead letters."""

    group: str
    partitions: tuple[PartitionCheckpoint, ...]
    dead_letters: int


class Checkpoints:
    """The consumer groups of a feed; made by `feed.checkpoints`."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store, self._events = store, events

    def groups(self) -> Sequence[str]:
        """The names of all groups, in order."""
        return [one.group for one in self._store.run(units.groups()) if one.of == "feed"]

    def list(self) -> Sequence[GroupCheckpoint]:
        """How far every group is."""
        return [self.show(group) for group in self.groups()]

    def show(self, group: str) -> GroupCheckpoint:
        """How far a group is in each partition, which member reads it, and its error; `UnknownGroup` if it is
        missing."""
        return self._store.run(self._show(check_name("group", group)))

    def reset(self, group: str) -> None:
        """Put a group back to the first event in every partition.  Running consumers continue from there."""
        for partition in range(self._partitions()):
            self.override(group, 0, partition=partition)

    def override(self, group: str, checkpoint: int, *, partition: int = 0) -> None:
        """Put a group to a checkpoint of one partition, back or forward.  A running consumer continues from there.

        `OutOfRange` if the checkpoint is beyond the tail; `BadInput` if it is no checkpoint."""
        place(checkpoint)
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < self._partitions():
            raise UnknownPartition(f"the feed has {self._partitions()} partitions, and none is {partition!r}")
        self._store.run(self._override(check_name("group", group), checkpoint, partition))

    def delete(self, group: str, *, force: bool = False, ttl: float = TTL_SECONDS) -> None:
        """Remove a group and its checkpoints; its dead letters stay.  `Conflict` while a member lives."""
        of = units_of(check_name("group", group))
        self._store.run(of.found())
        if not force:
            self._store.run(of.refuse_active(ttl))
        self._store.run(of.delete())
        for partition in range(self._partitions()):
            self._store.run(commit([progress_part(group, partition, None, self._events)], self._events.settings))

    def dead_letters(self, group: str) -> Sequence[DeadLetter]:
        """A group's dead letters, oldest first: the events that its handler has failed to handle."""
        return self._store.run(dead_letters.dead_letters(units_of(check_name("group", group))))

    def settle(self, group: str, number: int) -> None:
        """Remove a dead letter that an operator has dealt with."""
        self._store.run(dead_letters.settle(units_of(check_name("group", group)), number))

    # -- within
    def _partitions(self) -> int:
        return partitions_of(self._store.run(look()))

    def _override(self, group: str, checkpoint: int, partition: int) -> Steps[None]:
        yield from units_of(group).found()
        yield from IndexReader(partition, checkpoint).check_start()
        written = progress_part(group, partition, FeedProgress(checkpoint), self._events)
        yield from commit([written], self._events.settings)

    def _show(self, group: str) -> Steps[GroupCheckpoint]:
        of = units_of(group)
        item = yield from of.found()
        items = yield from of.everything(item["era"])
        members = yield from of.members()
        letters = yield from dead_letters.dead_letters(of)
        shown = []
        for partition in range(partitions_of((yield from look()))):
            progress = progress_of((yield from read_tip(checkpoint_stream(group, partition))))
            progress = progress or start_of(item, partition)
            shown.append((yield from _partition(partition, progress, items.get(str(partition)), members)))
        return GroupCheckpoint(group, tuple(shown), len(letters))


def _partition(
    partition: int, progress: FeedProgress, unit: Item | None, members: Mapping[int, Item]
) -> Steps[PartitionCheckpoint]:
    epoch, batch = place(progress.checkpoint)
    tail = yield from tail_of(partition)
    behind = tail.batches - batch if epoch <= tail.epoch else 0
    for number in range(epoch, tail.epoch):
        behind += (yield from read_tip(epoch_stream(partition, number))).version - 1  # its last event is no batch
    owner = members.get(unit["owner"]) if unit is not None else None
    fares: Mapping[str, Any] = owner["shown"].get("units", {}).get(str(partition), {}) if owner is not None else {}
    age = max(0.0, time.time() - fares["at"] / 1000) if "at" in fares else None
    name, error = owner["name"] if owner is not None else None, str(fares.get("error", ""))
    return PartitionCheckpoint(
        partition, progress.checkpoint, progress.within, tail.checkpoint, max(behind, 0), name, age, error
    )
