"""When the console looks at a home again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tailrace.console.web.snapshots import LONG, MAX_PAUSE_SECONDS, Look, Snapshots

SHORTEST = 2.0


class Slow(Snapshots):
    """Takes looks that last as long as a test says, on a clock of its own."""

    def __init__(self, *seconds: float) -> None:
        super().__init__(SHORTEST, lambda: self.now)
        self.now, self.seconds, self.taken = 100.0, list(seconds), 0

    async def _taken(self, call: Any) -> Look:
        self.now += self.seconds[self.taken]
        self.taken += 1
        return Look()

    def pause(self) -> float:
        """Take a look, and say how long after it the next one is taken."""
        before = self.taken
        asyncio.run(self.look(cast(Any, None)))
        assert self.taken == before + 1
        ended = self.now
        while self.now < self._next:
            asyncio.run(self.look(cast(Any, None)))
            self.now += 0.5
        assert self.taken == before + 1
        return self.now - ended


def test_a_slow_first_look_does_not_delay_the_second() -> None:
    pulse = Slow(5.0, 0.001)
    assert pulse.pause() == SHORTEST
    assert pulse.pause() == SHORTEST


def test_looks_that_stay_slow_are_taken_seldom() -> None:
    pulse = Slow(0.1, 0.1, 5.0, 5.0)
    assert [pulse.pause() for _ in range(4)] == [SHORTEST, 0.1 * LONG, 0.1 * LONG, MAX_PAUSE_SECONDS]
