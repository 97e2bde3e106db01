"""The feed for asyncio: `async for event in home.events().aio.feed()`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
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

        For a consumer use `events.feed().consumer(…)`, whose handler may be an `async def`, and await its `arun`."""
        return AsyncFeed(await asyncio.to_thread(self._fed.feed, checkpoint, **settings))


class AsyncFeed:
    """`Feed`, awaited.  Used by one task at a time."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._reading: Iterator[list[FeedEvent]] | None = None
        self._asked: asyncio.Future[list[FeedEvent] | None] | None = None
        """The batch that a thread is reading.  If its task is cancelled, the next task that asks gets the batch."""
        self._left: deque[FeedEvent] = deque()
        """The events of the current batch that `__aiter__` has not yielded yet."""

    @property
    def checkpoint(self) -> int:
        """Where to resume: see `Feed`."""
        return self._feed.checkpoint

    async def batches(self) -> AsyncIterator[list[FeedEvent]]:
        """The events up to the tail, a batch at a time."""
        if self._left:
            rest = list(self._left)
            self._left.clear()
            yield rest
        while (batch := await self._next_batch()) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[FeedEvent]:
        """The events up to the tail, one at a time; a new loop continues behind the last event of the one before."""
        while True:
            while self._left:
                yield self._left.popleft()
            if (batch := await self._next_batch()) is None:
                return
            self._left.extend(batch)

    async def _next_batch(self) -> list[FeedEvent] | None:
        if self._asked is None:
            self._reading = self._reading or self._feed.batches()
            self._asked = asyncio.get_running_loop().run_in_executor(None, next, self._reading, None)
        try:
            batch = await asyncio.shield(self._asked)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._asked = self._reading = None
            raise
        self._asked = None
        if batch is None:
            self._reading = None
        return batch

    async def follow(self, *, seconds: float | None = None) -> AsyncIterator[FeedEvent]:
        """The events as they come, without end or until the tail is reached after `seconds`."""
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
        """Stop the feed's threads."""
        if self._asked is not None:
            self._asked.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        self._feed.close()

    async def __aenter__(self) -> AsyncFeed:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
