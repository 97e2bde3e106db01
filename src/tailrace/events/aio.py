"""The event store for asyncio: it awaits the same steps; blocking calls go to threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from tailrace.events.cache import Load
from tailrace.events.decider import LATEST, Decider, paired, transact
from tailrace.events.event import Event
from tailrace.events.pruning import Pruned
from tailrace.events.reading import read_tip
from tailrace.events.store import Events, Stream, StreamChange, check_limit, pager
from tailrace.events.tip import Tip
from tailrace.storage.calls import Store

E = TypeVar("E")
S = TypeVar("S")
R = TypeVar("R")


class AsyncEvents:
    """The asyncio form of `Events`; `events.aio` makes it."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def stream(self, name: str) -> AsyncStream:
        """The stream of this name."""
        return AsyncStream(self._events.store, self._events.pruned, self._events.stream(name))

    async def append(self, *changes: StreamChange) -> dict[str, int]:
        """Append to several streams in one transaction; see `Events.append`."""
        return await self._events.store.arun(self._events.appending(changes))

    def decider(
        self, stream: str, codec: Any, fold: Callable[[S, E], S], initial: S, **more: Any
    ) -> AsyncDecider[E, S]:
        """Decisions on one stream; see `Events.decider`."""
        made: Decider[E, S] = self._events.decider(stream, codec, fold, initial, **more)
        return AsyncDecider(self._events.store, made)

    async def transact(
        self, *deciders: AsyncDecider[Any, Any], decide: Callable[..., Sequence[Iterable[Any]]], load: Load = LATEST
    ) -> list[Any]:
        """One decision over several streams; see `Events.transact`."""
        steps = transact([d.deciding for d in deciders], lambda states: (None, decide(*states)), load)
        return (await self._events.store.arun(steps))[1]


class AsyncStream:
    """The asyncio form of `Stream`."""

    def __init__(self, store: Store, pruned: Store, stream: Stream) -> None:
        self.name, self._store, self._pruned, self._stream = stream.name, store, pruned, stream
        self.change, self.expect = stream.change, stream.expect

    async def append(
        self, events: Sequence[Event] = (), *, expected: int | None = None, unfolds: Sequence[Event] = ()
    ) -> int:
        """Append events; see `Stream.append`."""
        return await self._store.arun(self._stream.appending(events, expected, unfolds))

    async def tip(self) -> Tip:
        """Read the stream's Tip."""
        return await self._store.arun(read_tip(self.name))

    async def version(self) -> int:
        """How many events the stream has had."""
        return (await self.tip()).version

    async def read(
        self, start: int = 0, stop: int | None = None, *, backwards: bool = False, limit: int | None = None
    ) -> AsyncIterator[Event]:
        """The events of a range; see `Stream.read`."""
        reader, left = pager(self.name, start, stop, backwards), check_limit(limit)
        while (left is None or left > 0) and (page := await self._store.arun(reader.page())):
            for event in page[:left]:
                yield event
            left = None if left is None else left - len(page)

    async def prune(self, until: int) -> Pruned:
        """Remove the events up to an index; see `Stream.prune`."""
        return await self._pruned.arun(self._stream.pruning(until))


class AsyncDecider(Generic[E, S]):
    """The asyncio form of `Decider`; `decide` is a plain function."""

    def __init__(self, store: Store, decider: Decider[E, S]) -> None:
        self._store, self.deciding = store, decider.deciding

    async def state(self, load: Load = LATEST) -> S:
        """Load the stream's state; see `Decider.state`."""
        return (await self._store.arun(self.deciding.load(load))).state

    async def transact(self, decide: Callable[[S], Iterable[E]], load: Load = LATEST) -> S:
        """Decide and write; see `Decider.transact`."""
        steps = transact([self.deciding], lambda states: (None, [decide(states[0])]), load)
        state: S = (await self._store.arun(steps))[1][0]
        return state

    async def answer(self, decide: Callable[[S], tuple[R, Iterable[E]]], load: Load = LATEST) -> R:
        """Decide, write and answer; see `Decider.answer`."""
        return (await self._store.arun(transact([self.deciding], lambda states: paired(decide(states[0])), load)))[0]
