"""The event store in asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.errors import VersionConflict
from tailrace.events import Event, Events
from tailrace.storage.calls import Store
from tests.events.counting import CODEC, ZERO, Added, fold


def test_streams(store: Store) -> None:
    async def main() -> None:
        events = Events(store, max_events=2).aio
        stream, other = events.stream("Cart-1"), events.stream("Cart-2")
        assert await stream.append([Event("A")] * 3, expected=0) == 3
        assert await stream.append([Event("B")] * 3) == 6
        with pytest.raises(VersionConflict):
            await stream.append([Event("A")], expected=2)
        assert [e.index async for e in stream.read()] == [*range(6)]
        assert [e.index async for e in stream.read(1, backwards=True, limit=4)] == [5, 4, 3, 2]
        assert [e.index async for e in stream.read(limit=0)] == []
        assert await stream.prune(2) == (3, 0, 3)
        assert await stream.version() == (await stream.tip()).version == 6
        assert await events.append(other.change([Event("C")]), stream.expect(6)) == {"Cart-2": 1, "Cart-1": 6}

    asyncio.run(main())


def test_deciders(store: Store) -> None:
    async def main() -> None:
        events = Events(store).aio
        one: Any = events.decider("Counter-1", CODEC, fold, ZERO, attempts=50)
        two: Any = events.decider("Counter-2", CODEC, fold, ZERO)
        await asyncio.gather(*(one.transact(lambda state: [Added(1)]) for _ in range(5)))
        assert await one.state() == (5, 5)
        assert await one.answer(lambda state: ("ok", [Added(1)])) == "ok"
        states = await events.transact(one, two, decide=lambda a, b: [[Added(-2)], [Added(2)]])
        assert [state[0] for state in states] == [4, 2]

    asyncio.run(main())
