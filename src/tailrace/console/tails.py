"""Tails: followers of a topic wait here for new records.  However many followers a topic has, its tail reads the head
once, and fetches and encodes new records once for all followers that have caught up; the others read by themselves.

A tail learns at once of the appends of this process.  Those of other processes show in the version of the table, if it
has one; otherwise the tail reads the head every `poll_seconds`.  It asks nothing while no follower waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tailrace.console.cursor import cursor_of
from tailrace.console.reading import STREAM_BYTES, Page, items_of
from tailrace.console.streaming import Batch
from tailrace.coordination.watch import watch
from tailrace.errors import StorageError, TailraceError
from tailrace.log.read.reader import Reader
from tailrace.log.topic_log import TopicLog
from tailrace.storage.calls import Store

LOOK_SECONDS = 0.04
"""Seconds between looks at the version of a table on disk, in which a tail sees that another process has written."""
LONGEST = 1.0
"""Seconds after which a tail reads the head although the version is the same."""
MOST_SHARED_BYTES, MOST_SHARED_PAGES = 4 * 1024 * 1024, 16
"""The most that a tail fetches for all followers at a time, and keeps for those that are a little behind."""


class Tail:
    """The end of one topic, watched for all of its followers."""

    def __init__(self, store: Store, log: TopicLog, poll_seconds: float) -> None:
        self._store, self._log, self._poll = store, log, poll_seconds
        self.ends: Mapping[int, int] = {}
        self.error: TailraceError | None = None
        """Why no more records come, for example because the topic was deleted."""
        self._told, self._moved = asyncio.Event(), asyncio.Event()
        self.followers = 0
        self._pages: OrderedDict[str, Page] = OrderedDict()

    async def run(self) -> None:
        """Read the head whenever there may be new records, until cancelled."""
        loop, watched = asyncio.get_running_loop(), watch(self._store)
        stop = watched.listen(self._log.id, lambda: loop.call_soon_threadsafe(self._told.set))
        try:
            while True:
                self._told.clear()
                version = watched.version()
                await self._look()
                await self._pause(version)
        finally:
            stop()

    async def _look(self) -> None:
        try:
            ends = (await self._store.arun(self._log.head())).next
        except StorageError:
            return  # the storage is away: the next look may succeed, and followers that read report it themselves
        except TailraceError as error:
            self.error = error
            ends = {}
        if ends != self.ends or self.error is not None:
            if self.followers > 1 and self.ends and self.error is None:
                await self._fetch(self.ends, ends)
            self.ends = dict(ends)
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    async def _fetch(self, start: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Fetch the new records, up to MOST_SHARED_BYTES, for all followers that have read everything before them."""
        reader, size = Reader(self._log, start, until=ends, every=True), 0
        try:
            while size < MOST_SHARED_BYTES:
                at = dict(reader.positions)
                fetched = await self._store.arun(reader.poll(STREAM_BYTES))
                if not fetched or reader.skipped:
                    return
                page = Page(fetched, next=dict(reader.positions))
                page.batch = Batch(await asyncio.to_thread(items_of, page, self._log.name, dict(at)))
                self._pages[cursor_of(at)] = page
                size += sum(one.data.nbytes for one in fetched)
                while len(self._pages) > MOST_SHARED_PAGES:
                    self._pages.popitem(last=False)
        except TailraceError:
            return  # each follower meets the error when it reads, and reports it

    def page_at(self, positions: Mapping[int, int]) -> Page | None:
        """Return the page that begins at these positions, or None if it was not fetched for all followers."""
        return self._pages.get(cursor_of(positions)) if self._pages else None

    async def _pause(self, version: int | None) -> None:
        """Wait until the next look is due."""
        watched = watch(self._store)
        if version is None:
            await _wait(self._told, self._poll)
            return
        until = time.monotonic() + LONGEST
        while time.monotonic() < until and watched.version() == version:
            if await _wait(self._told, LOOK_SECONDS):
                return

    async def more(self, positions: Mapping[int, int], seconds: float, *, every: bool) -> bool:
        """Wait up to `seconds` for records behind these positions; return whether there are any.

        With `every`, records in partitions that the topic has got since count, too.  Raises the tail's `error`."""
        until = time.monotonic() + seconds
        while True:
            if self.error is not None:
                raise self.error
            moved = self._moved
            if self._has_more(positions, every):
                return True
            left = until - time.monotonic()
            if left <= 0 or not await _wait(moved, left):
                return self._has_more(positions, every)

    def _has_more(self, positions: Mapping[int, int], every: bool) -> bool:
        return any(end > positions.get(q, 0 if every else end) for q, end in self.ends.items())


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Tails:
    """The tails of the topics that have followers at the moment."""

    def __init__(self, store: Store, poll_seconds: float) -> None:
        self._store, self._poll = store, poll_seconds
        self._tails: dict[str, tuple[Tail, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def follow(self, log: TopicLog) -> AsyncIterator[Tail]:
        """Yields the tail of a topic, for the length of a block.  The tail runs as long as it has followers."""
        if log.id not in self._tails:
            tail = Tail(self._store, log, self._poll)
            self._tails[log.id] = tail, asyncio.create_task(tail.run(), name=f"tailrace-tail-{log.name}")
        tail, task = self._tails[log.id]
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers:
                del self._tails[log.id]
                task.cancel()

    def close(self) -> None:
        """Cancel all tails."""
        for _, task in self._tails.values():
            task.cancel()
