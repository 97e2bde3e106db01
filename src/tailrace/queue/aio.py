"""The queue for asyncio: the calls of `Queue`, awaited.  A worker's handler may be a coroutine function with either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.queue.pushing import NotBefore, Pushed
from tailrace.queue.worker import Worker

if TYPE_CHECKING:
    from tailrace.queue.queue import Queue
    from tailrace.queue.stats import Stats


class AsyncQueue:
    """A queue whose calls are awaited; each runs in a thread."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def push(
        self,
        message: Any,
        shard_key: str | bytes | None = None,
        *,
        dedup: str | None = None,
        not_before: NotBefore | None = None,
    ) -> Pushed:
        """As `Queue.push`."""
        push = partial(self._queue.push, message, shard_key, dedup=dedup, not_before=not_before)
        return await asyncio.to_thread(push)

    async def push_many(self, messages: Iterable[Any]) -> list[Pushed]:
        """As `Queue.push_many`."""
        return await asyncio.to_thread(self._queue.push_many, messages)

    async def stats(self) -> Stats:
        """As `Queue.stats`."""
        return await asyncio.to_thread(self._queue.stats)

    async def tail(self, handler: Callable[[Any], Any], **working: Any) -> AsyncWorker:
        """As `Queue.tail`.  A handler that is a coroutine function runs in an event loop of the worker's thread, not in
        the caller's."""
        return AsyncWorker(await asyncio.to_thread(partial(self._queue.tail, handler, **working)))


class AsyncWorker:
    """A worker, shut down when its `async with` block ends."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    async def shutdown(self) -> None:
        """As `Worker.shutdown`."""
        await asyncio.to_thread(self.worker.shutdown)

    async def __aenter__(self) -> Worker:
        return self.worker

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown()
