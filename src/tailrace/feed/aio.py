"""The feed for asyncio: `async for event in home.events().aio.feed()`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tailrace.coordination.watch import Wait, watch
from tailrace.events.aio import AsyncEvents
from tailrace.feed.feed import Feed, FeedEvent

if TYPE_CHECKING:
    from tailrace.feed.store import FedEvents


class AsyncFedEvents(AsyncEvents):
    """An event store with its feed, awaited; made by `events.aio`."""

    def __init__(self, events: FedEvents) -> None:
        super().__init__(events)
        self._fed = events

    async def feed(self, checkpoint: int = 0, **settings: Any) -> AsyncFeed:
        """Every event of the store from a checkpoint on; see `FedEvents.feed`.

        For consumers use `events.feed().consumer(…)`, whose handler may be an `async def`, and await its `arun`."""
        return AsyncFeed(await asyncio.to_thread(self._fed.feed, checkpoint, **settings))


class AsyncFeed:
    """`Feed`, awaited.  Used by one task at a time."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def checkpoint(self) -> int:
        """Behind everything that was given, and what was left out before that."""
        return self._feed.checkpoint

    async def batches(self) -> AsyncIterator[list[FeedEvent]]:
        """What there is now, a batch at a time, up to the tail."""
        batches = self._feed.batches()
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[FeedEvent]:
        """What there is now, an event at a time, up to the tail."""
        async for batch in self.batches():
            for event in batch:
                yield event

    async def follow(self, *, seconds: float | None = None) -> AsyncIterator[FeedEvent]:
        """The events as they come: without end, or for so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        wait, found = Wait(watch(self._feed.store), asyncio.Event()), False
        while end is None or time.monotonic() < end:
            wait.begin(found)
            found = False
            async for event in self:
                found = True
                yield event
            if not found:
                self._feed.check_indexing()
                for pause in wait.pauses():
                    if end is not None and time.monotonic() >= end:
                        return
                    await asyncio.sleep(pause)

    def close(self) -> None:
        """Give up the threads."""
        self._feed.close()

    async def __aenter__(self) -> AsyncFeed:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
