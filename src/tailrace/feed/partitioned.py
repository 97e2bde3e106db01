"""Partitioned feed: all partitions of an index read as one; a stream is in one partition, so its events stay in
order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tailrace.errors import BadInput
from tailrace.events.store import Events
from tailrace.feed.feed import Feed, FeedEvent


class PartitionedFeed(Feed):
    """All partitions of the feed, a batch of each in turn.  `positions` has a checkpoint for each partition;
    `checkpoint` has no meaning here."""

    def __init__(self, events: Events, starts: Sequence[int], **settings: Any) -> None:
        super().__init__(events, 0, **settings)
        self._parts = [Feed(events, start, partition=q, **settings) for q, start in enumerate(starts)]

    @property
    def positions(self) -> tuple[int, ...]:
        """The checkpoint of each partition, for `events.feed(positions)`."""
        return tuple(part.checkpoint for part in self._parts)

    def batches(self, until: int | None = None) -> Iterator[list[FeedEvent]]:
        """The events up to the tails, a batch of each partition in turn; `BadInput` with `until`."""
        if until is not None:
            raise BadInput("a checkpoint is a place in one partition of the feed; read one: feed(…, partition=0)")
        yield from self._rest()
        reading = [part.batches() for part in self._parts]
        while reading:
            for one in list(reading):
                batch = next(one, None)
                if batch is None:
                    reading.remove(one)
                else:
                    yield batch

    def close(self) -> None:
        """Stop the threads of all partitions."""
        super().close()
        for part in self._parts:
            part.close()


def starts_of(given: int | Sequence[int], partitions: int) -> list[int]:
    """The checkpoints of all partitions, where 0 alone means the beginning of each; `BadInput` if their number is
    wrong."""
    several = isinstance(given, list | tuple)
    if not several and (given == 0 or partitions == 1):
        return [given] * partitions  # type: ignore[list-item]
    if not several or len(given) != partitions:  # type: ignore[arg-type]
        raise BadInput(
            f"the feed has {partitions} partitions, so it goes on from {partitions} checkpoints (feed.positions), "
            f"not from {given!r}; partition=N reads one of them"
        )
    return list(given)  # type: ignore[arg-type]
