"""Simulated calls: carries out calls on simulated storage, for a `Simulation`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tailrace.errors import TailraceError
from tailrace.storage.calls import (
    Call,
    DeleteObjects,
    Get,
    GetObject,
    ListObjects,
    Now,
    Pause,
    PutObject,
    Query,
    Scan,
    Write,
)
from tailrace.storage.memory.admission import admit
from tailrace.testing.clock import ManualClock
from tailrace.testing.simulatedobjects import SimulatedObjects
from tailrace.testing.simulatedtable import SimulatedTable

CALL_SECONDS = 0.001


class SimulatedCalls:
    """Carries out calls on a table, objects and a clock.  Each call takes a millisecond; answers are not copied."""

    __slots__ = ("clock", "objects", "table")

    def __init__(self, table: SimulatedTable, objects: SimulatedObjects, clock: ManualClock) -> None:
        self.table, self.objects, self.clock = table, objects, clock

    def answer(self, call: Call, torn: int | None = None) -> Any:
        """Carry out a call and return its answer; with `torn`, plain reads do not yet show what that action of the
        transaction did."""
        self.clock.move(CALL_SECONDS)
        if isinstance(call, Get):
            self.table.calls["get"] += 1
            return self.table.look(call.key)
        if isinstance(call, Write):
            self.table.calls["write"] += 1
            answer = self.table.apply(admit(call.actions), torn)
            return answer if self.table.answers or len(call.actions) == 1 else None
        if isinstance(call, Query):
            self.table.calls["query"] += 1
            return self.table.range(call.hash_key, call.low, call.high, call.descending, call.limit)
        if isinstance(call, Scan):
            self.table.calls["scan"] += 1
            return self.table.some(call.after)
        if isinstance(call, Now):
            return self.clock.monotonic()
        if isinstance(call, Pause):
            return self.clock.move(pause_seconds(call))
        return self._answer_objects(call)

    def _answer_objects(self, call: PutObject | GetObject | ListObjects | DeleteObjects) -> Any:
        if isinstance(call, GetObject):
            self.objects.calls["get"] += 1
            return self.objects.look(call.name, call.ranges)
        if isinstance(call, PutObject):
            self.objects.calls["put"] += 1
            return self.objects.store(call.name, b"".join(call.parts))
        if isinstance(call, DeleteObjects):
            self.objects.calls["delete"] += 1
            return self.objects.drop(call.names)
        self.objects.calls["list"] += 1
        return self.objects.infos(call.prefix)

    def land(self, call: Call) -> None:
        """Carry out a request whose sender gets no answer, not even a refusal."""
        with suppress(TailraceError):
            self.answer(call)


def pause_seconds(call: Pause) -> float:
    """Return how long a simulated pause lasts: the longest time that `backoff` would draw."""
    return min(2.0, 0.01 * 2.0 ** min(call.attempt, 16))


def parts(call: Call) -> Iterator[Call]:
    """Yield the parts of a simulated request that land one by one: each object of a delete by itself, any other request
    whole, as a copy."""
    if isinstance(call, Write):
        yield Write(tuple(action for action, _ in admit(call.actions)))
    elif isinstance(call, DeleteObjects):
        yield from (DeleteObjects((name,)) for name in call.names)
    elif isinstance(call, PutObject):
        yield PutObject(call.name, (b"".join(call.parts),))
