"""Calls: what a protocol asks of storage, as values; and the loops that carry them out.

A protocol (an append, a lease, a merge) is a generator that yields one call at a time and is sent its answer, or has
the call's error thrown into it.  So the same code runs blocking (`Store.run`), in asyncio (`Store.arun`) and under
the simulator, which decides at each call who moves next, what times out and who dies.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from tailrace.storage.objects import Bytes, ObjectInfo, Objects
from tailrace.storage.tables import LAST, Action, Item, Key, Slice, Table

T = TypeVar("T")


class Get(Struct, frozen=True):
    """One item, consistently."""

    key: Key


class Query(Struct, frozen=True):
    """Items of one hash, in order of their range keys."""

    p: str
    low: int = 0
    high: int = LAST
    descending: bool = False
    limit: int | None = None


class Scan(Struct, frozen=True):
    """Items of all hashes, behind this key."""

    after: Key | None = None


class Write(Struct, frozen=True):
    """One guarded write."""

    actions: tuple[Action, ...]


class PutObject(Struct, frozen=True):
    """Bytes under a new name."""

    name: str
    parts: Sequence[Bytes]


class GetObject(Struct, frozen=True):
    """Some ranges of an object, or all of it."""

    name: str
    ranges: tuple[tuple[int, int], ...] | None = None


class ListObjects(Struct, frozen=True):
    """Names below a prefix."""

    prefix: str


class DeleteObjects(Struct, frozen=True):
    """Objects that nobody refers to."""

    names: tuple[str, ...]


class Pause(Struct, frozen=True):
    """Wait before trying again, longer with each attempt."""

    attempt: int


class Now(Struct, frozen=True):
    """This process's monotonic clock, in seconds."""


Call: TypeAlias = Get | Query | Scan | Write | PutObject | GetObject | ListObjects | DeleteObjects | Pause | Now
Steps: TypeAlias = Generator[Call, Any, T]


def get(key: Key) -> Steps[Item | None]:
    """Ask for one item."""
    return (yield Get(key))  # type: ignore[no-any-return]


def query(
    p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
) -> Steps[Slice]:
    """Ask for one page of items."""
    return (yield Query(p, low, high, descending, limit))  # type: ignore[no-any-return]


def scan(after: Key | None = None) -> Steps[list[Item]]:
    """Ask for some items of all hashes."""
    return (yield Scan(after))  # type: ignore[no-any-return]


def write(*actions: Action) -> Steps[tuple[Item | None, ...] | None]:
    """Ask for one guarded write."""
    return (yield Write(actions))  # type: ignore[no-any-return]


def put_object(name: str, parts: Sequence[Bytes]) -> Steps[None]:
    """Ask for bytes to be stored."""
    yield PutObject(name, parts)


def get_object(name: str, ranges: tuple[tuple[int, int], ...] | None = None) -> Steps[list[memoryview]]:
    """Ask for ranges of an object, or for all of it."""
    return (yield GetObject(name, ranges))  # type: ignore[no-any-return]


def get_whole(name: str) -> Steps[list[memoryview]]:
    """Ask for all of an object."""
    return (yield GetObject(name))  # type: ignore[no-any-return]


def list_objects(prefix: str) -> Steps[list[ObjectInfo]]:
    """Ask for names below a prefix."""
    return (yield ListObjects(prefix))  # type: ignore[no-any-return]


def delete_objects(names: Sequence[str]) -> Steps[None]:
    """Ask for objects to be removed."""
    yield DeleteObjects(tuple(names))


def pause(attempt: int) -> Steps[None]:
    """Wait a little, longer with each attempt."""
    yield Pause(attempt)


def now() -> Steps[float]:
    """The monotonic clock."""
    return (yield Now())  # type: ignore[no-any-return]


def backoff(attempt: int, rng: random.Random, base: float = 0.01, cap: float = 2.0) -> float:
    """Seconds to wait before attempt number `attempt` + 1: exponential, with full jitter."""
    return rng.uniform(0, min(cap, base * 2.0 ** min(attempt, 16)))


@dataclass(slots=True)
class Store:
    """A table and objects, and the means to carry out steps on them."""

    table: Table
    objects: Objects
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def answer(self, call: Call) -> Any:
        """Carry out one call, blocking."""
        match call:
            case Write(actions):
                return self.table.write(*actions)
            case Get(key):
                return self.table.get(key)
            case Query(p, low, high, descending, limit):
                return self.table.query(p, low, high, descending=descending, limit=limit)
            case Scan(after):
                return self.table.scan(after)
            case PutObject(name, parts):
                return self.objects.put(name, parts)
            case GetObject(name, None):
                return [self.objects.get(name)]
            case GetObject(name, ranges):
                return self.objects.get_ranges(name, ranges or ())
            case ListObjects(prefix):
                return list(self.objects.list(prefix))
            case DeleteObjects(names):
                return self.objects.delete(names)
            case Pause(attempt):
                return self.sleep(backoff(attempt, self.rng))
            case Now():
                return self.clock()

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps in this thread; gives what they return."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self.answer(call)
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def arun(self, steps: Steps[T], executor: Executor | None = None) -> T:
        """Carry out steps in asyncio: pauses are awaited, blocking calls go to threads."""
        loop = asyncio.get_running_loop()
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self._aanswer(call, loop, executor)
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _aanswer(self, call: Call, loop: asyncio.AbstractEventLoop, executor: Executor | None) -> Any:
        if isinstance(call, Now):
            return self.clock()
        if isinstance(call, Pause):
            return await asyncio.sleep(backoff(call.attempt, self.rng))
        return await loop.run_in_executor(executor, self.answer, call)

    def close(self) -> None:
        """Close both."""
        self.table.close()
        self.objects.close()
