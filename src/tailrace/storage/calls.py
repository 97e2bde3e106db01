"""Calls: what a protocol asks of storage, as values, and the loops that carry them out.

A protocol (an append, a lease, a merge) is a generator that yields one call at a time and is sent its answer, or has
the call's error thrown into it.  So the same code runs blocking (`Store.run`), in asyncio (`Store.arun`) and under
the simulator, which decides at each call which process moves next, which call times out and which process dies.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from tailrace.errors import Conflict, GaveUp, TimedOut
from tailrace.storage import forks
from tailrace.storage.objects import Bytes, ObjectInfo, Objects
from tailrace.storage.tables import LAST, Action, Item, Key, Slice, Table

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a request is repeated while the storage refuses it or does not answer, before the caller gets an
error."""


class Get(Struct, frozen=True):
    """Read one item, consistently."""

    key: Key


class Query(Struct, frozen=True):
    """Read items of one hash, in order of their range keys."""

    hash_key: str
    low: int = 0
    high: int = LAST
    descending: bool = False
    limit: int | None = None


class Scan(Struct, frozen=True):
    """Read items of all hashes, after this key."""

    after: Key | None = None


class Write(Struct, frozen=True):
    """One guarded write."""

    actions: tuple[Action, ...]
    tables: tuple[Any, ...] = ()
    """The table of each action, None for the store's own; empty: all actions are on the store's own."""


class PutObject(Struct, frozen=True):
    """Store bytes under a new name."""

    name: str
    parts: Sequence[Bytes]


class GetObject(Struct, frozen=True):
    """Read some ranges of an object, or all of it."""

    name: str
    ranges: tuple[tuple[int, int], ...] | None = None


class ListObjects(Struct, frozen=True):
    """List the names below a prefix."""

    prefix: str


class DeleteObjects(Struct, frozen=True):
    """Remove objects that nothing refers to."""

    names: tuple[str, ...]


class Pause(Struct, frozen=True):
    """Wait before the next attempt, longer each time."""

    attempt: int


class Now(Struct, frozen=True):
    """Read this process's monotonic clock, in seconds."""


Call: TypeAlias = Get | Query | Scan | Write | PutObject | GetObject | ListObjects | DeleteObjects | Pause | Now
Steps: TypeAlias = Generator[Call, Any, T]


def get(key: Key) -> Steps[Item | None]:
    """Ask for one item."""
    return (yield Get(key))  # type: ignore[no-any-return]


def query(
    p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
) -> Steps[Slice]:
    """Ask for one page of the items of a hash."""
    return (yield Query(p, low, high, descending, limit))  # type: ignore[no-any-return]


def scan(after: Key | None = None) -> Steps[list[Item]]:
    """Ask for some items of all hashes."""
    return (yield Scan(after))  # type: ignore[no-any-return]


def write(*actions: Action, tables: tuple[Any, ...] = ()) -> Steps[tuple[Item | None, ...] | None]:
    """Ask for one guarded write; `tables` names the table of each action if not all go to the store's own."""
    return (yield Write(actions, tables))  # type: ignore[no-any-return]


def put_object(name: str, parts: Sequence[Bytes]) -> Steps[None]:
    """Ask to store bytes as an object."""
    yield PutObject(name, parts)


def get_object(name: str, ranges: tuple[tuple[int, int], ...] | None = None) -> Steps[list[memoryview]]:
    """Ask for ranges of an object, or for all of it."""
    return (yield GetObject(name, ranges))  # type: ignore[no-any-return]


def get_whole(name: str) -> Steps[list[memoryview]]:
    """Ask for all of an object."""
    return (yield GetObject(name))  # type: ignore[no-any-return]


def list_objects(prefix: str) -> Steps[list[ObjectInfo]]:
    """Ask for the names of the objects below a prefix."""
    return (yield ListObjects(prefix))  # type: ignore[no-any-return]


def delete_objects(names: Sequence[str]) -> Steps[None]:
    """Ask to remove objects."""
    yield DeleteObjects(tuple(names))


def pause(attempt: int) -> Steps[None]:
    """Ask to wait a little, longer with each attempt."""
    yield Pause(attempt)


def now() -> Steps[float]:
    """Ask for the time of the monotonic clock."""
    return (yield Now())  # type: ignore[no-any-return]


def backoff(attempt: int, rng: random.Random, base: float = 0.01, cap: float = 2.0) -> float:
    """The seconds that a pause waits before attempt number `attempt` + 1: exponential, with full jitter."""
    return rng.uniform(0, min(cap, base * 2.0 ** min(attempt, 16)))


class ProtocolRun(Generic[T]):
    """A run of steps: the caller carries out each call and hands in its answer or error.

    After a missing answer a protocol compares and tries again, in a loop of its own.  `next_call` ends every such loop:
    it throws `GaveUp` into the steps once writes of the same items have had no answer for `PATIENCE` seconds."""

    __slots__ = ("_call", "_clock", "_steps", "_unanswered_since", "answer", "error", "result")

    def __init__(self, steps: Steps[T], clock: Callable[[], float]) -> None:
        self._steps, self._clock = steps, clock
        self._unanswered_since: dict[tuple[Key, ...], float] = {}
        self._call: Call | None = None
        self.answer: Any = None
        """The answer to the last call."""
        self.error: Exception | None = None
        """What the last call raised instead of an answer."""
        self.result: T
        """What the steps returned, once there is no next call."""

    def next_call(self) -> Call | None:
        """The next call to carry out; None when the steps have ended."""
        try:
            if self.error is not None:
                self._call = self._steps.throw(self._judged())
            else:
                if self._unanswered_since:
                    self._answered()
                self._call = self._steps.send(self.answer)
        except StopIteration as stop:
            self.result = stop.value
            return None
        return self._call

    def _answered(self) -> None:
        if isinstance(self._call, Write):
            self._unanswered_since.pop(_items(self._call), None)

    def _judged(self) -> Exception:
        """The error that the steps get.  This run keeps no reference to it, since the error's traceback refers to the
        run."""
        call, error, self.error = self._call, self.error, None
        assert error is not None
        if isinstance(error, Conflict):
            self._answered()
        if not (isinstance(call, Write) and isinstance(error, TimedOut)):
            return error
        now = self._clock()
        waited = now - self._unanswered_since.setdefault(_items(call), now)
        if waited < PATIENCE:
            return error
        p, i = call.actions[0].key
        gave_up = GaveUp(
            f"writes of item {p}/{i} had no answer for {waited:.0f} s; they may have happened, or may happen yet "
            f"({error}); when the storage answers again, do the same once more"
        )
        gave_up.__cause__ = error
        return gave_up


def _items(call: Write) -> tuple[Key, ...]:
    return tuple(action.key for action in call.actions)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Store:
    """A table and objects, and the loops that carry out steps on them."""

    table: Table
    objects: Objects
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)
    forked: bool = field(default=False, init=False)
    """Whether this is a forked child's copy, which must not be used."""

    def __post_init__(self) -> None:
        forks.watch(self)

    def left_behind(self) -> None:
        """Refuse all calls: this is a forked child's copy."""
        self.forked = True

    def check(self) -> None:
        """Raise if this is a forked child's copy."""
        if self.forked:
            raise forks.refusal()

    def answer(self, call: Call) -> Any:
        """Carry out one call, blocking."""
        match call:
            case Write(actions, tables):
                return self._write_across(actions, tables) if tables else self.table.write(*actions)
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

    def _write_across(self, actions: tuple[Action, ...], tables: tuple[Any, ...]) -> None:
        """One write to several tables in the same place."""
        own: Any = self.table
        own.write_with(*((table or own, action) for table, action in zip(tables, actions, strict=True)))

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps in this thread; returns what they return.  `GaveUp` if their writes are not answered."""
        self.check()
        protocol = ProtocolRun(steps, self.clock)
        while (call := protocol.next_call()) is not None:
            try:
                protocol.answer = self.answer(call)
            except Exception as error:
                protocol.error = error
        return protocol.result

    async def arun(self, steps: Steps[T], executor: Executor | None = None) -> T:
        """Carry out steps in asyncio: pauses are awaited, blocking calls go to threads."""
        import asyncio

        self.check()
        loop, protocol = asyncio.get_running_loop(), ProtocolRun(steps, self.clock)
        while (call := protocol.next_call()) is not None:
            try:
                protocol.answer = await self._aanswer(call, loop, executor)
            except Exception as error:
                protocol.error = error
        return protocol.result

    async def _aanswer(self, call: Call, loop: asyncio.AbstractEventLoop, executor: Executor | None) -> Any:
        import asyncio

        if isinstance(call, Now):
            return self.clock()
        if isinstance(call, Pause):
            return await asyncio.sleep(backoff(call.attempt, self.rng))
        return await loop.run_in_executor(executor, self.answer, call)

    def close(self) -> None:
        """Close the table and the objects. A forked child does nothing: they belong to its parent."""
        if self.forked:
            return
        self.table.close()
        self.objects.close()
