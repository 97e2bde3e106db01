"""Followers of a stream: its changes as they come, in a `for` or an `async for` loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from tailrace.streams.stream import Stream

R = TypeVar("R")

FIRST_PAUSE = 0.005
"""Seconds before the second look at a stream that has nothing new; each later pause is longer."""


class ChangeFollower(Iterator[R], AsyncIterator[R], Generic[R]):
    """Delivers changes without end, or until its time is over; waits longer and longer while nothing is new."""

    def __init__(self, stream: Stream[R], seconds: float | None, pause: float) -> None:
        self._stream, self._longest = stream, pause
        self._end = None if seconds is None else time.monotonic() + seconds
        self._pause = FIRST_PAUSE

    def __iter__(self) -> ChangeFollower[R]:
        return self

    def __next__(self) -> R:
        while (record := next(self._stream)) is None:
            if (wait := self._wait()) is None:
                raise StopIteration
            time.sleep(wait)
        self._pause = FIRST_PAUSE
        return record

    def __aiter__(self) -> ChangeFollower[R]:
        return self

    async def __anext__(self) -> R:
        while (record := self._stream.next_ready()) is None:
            if await _in_thread(self._stream.ask):
                continue
            if (wait := self._wait()) is None:
                raise StopAsyncIteration
            await asyncio.sleep(wait)
        self._pause = FIRST_PAUSE
        return record

    def _wait(self) -> float | None:
        """Return how long to wait before the next request to the service, in seconds; None when the time is over."""
        left = float("inf") if self._end is None else self._end - time.monotonic()
        if left <= 0:
            return None
        self._pause = min(self._pause * 1.5, self._longest)
        return min(self._pause, left)


async def _in_thread(ask: Callable[[], bool]) -> bool:
    """Ask the service in a thread.  A cancelled task ends only after the answer: until then the thread uses the stream,
    which nothing else may use."""
    asked = asyncio.get_running_loop().run_in_executor(None, ask)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        await asyncio.wait([asked])
        asked.exception()  # marks the error as seen; the next request meets it again
        raise
