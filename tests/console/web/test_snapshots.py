"""When the console looks at a home again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tailrace.console.api.pipelines import PipelineStatus
from tailrace.console.web.pages.pipelines import left
from tailrace.console.web.snapshots import KEEP_SECONDS, LONG, MAX_PAUSE_SECONDS, Look, Snapshots

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


def test_the_time_that_a_copy_takes_is_known_by_its_rate() -> None:
    def status(copied: int) -> PipelineStatus:
        sources = {"a": {"phase": "copy", "rows": 1000, "copied": copied}, "b": {"phase": "sync", "copied": 7}}
        return PipelineStatus("shop", "copying", "", "", 0.0, 0, 0, sources, {})

    pulse = Slow()
    visit = cast(Any, SimpleNamespace(pulse=pulse))
    pulse._keep(Look(at=100.0, pipelines=[status(100)]))
    assert left(visit, "shop", "a", status(100).sources["a"]) is None
    pulse._keep(Look(at=110.0, pipelines=[status(300)]))
    assert left(visit, "shop", "a", status(300).sources["a"]) == 35.0  # 700 rows, at 20 a second
    assert left(visit, "shop", "b", status(300).sources["b"]) is None
    assert left(visit, "shop", "a", {**status(300).sources["a"], "rows": None}) is None
    assert left(visit, "shop", "a", {**status(300).sources["a"], "copied": 1200}) is None


def test_what_is_kept_is_made_once_for_all_who_wait() -> None:
    async def ask() -> None:
        pulse, made, go_on = Slow(), 0, asyncio.Event()

        async def make() -> int:
            nonlocal made
            made += 1
            await go_on.wait()
            if made == 1:
                raise ValueError("the storage is away")
            return made

        waiting = [asyncio.create_task(pulse.keep(("topic", "a"), make)) for _ in range(10)]
        await asyncio.sleep(0)
        waiting[0].cancel()  # the browser that has asked first is gone
        go_on.set()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError, *[ValueError] * 9]
        assert made == 1
        assert [await pulse.keep(("topic", "a"), make) for _ in range(3)] == [2, 2, 2]
        pulse.now += KEEP_SECONDS + 1
        assert await pulse.keep(("topic", "a"), make) == 3
        pulse.forget()
        assert await pulse.keep(("topic", "a"), make) == 4

    asyncio.run(ask())


def test_a_scan_of_the_home_is_kept_as_long_as_it_costs() -> None:
    async def ask() -> None:
        pulse, made = Slow(), 0

        async def make() -> int:
            nonlocal made
            made, pulse.now = made + 1, pulse.now + 10  # a scan of many streams
            return made

        async def asked(after: float) -> int:
            pulse.now += after
            return await pulse.keep(("categories",), make, scan=True)

        assert await asked(0) == 1
        assert await asked(10 * LONG - 1) == 1
        pulse.forget()
        assert await asked(0) == 1
        assert await asked(2) == 2

    asyncio.run(ask())
