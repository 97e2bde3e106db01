"""How long a commit waits for company."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tailrace.errors import BadSetting
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.log.write.linger import Linger
from tailrace.testing import ManualClock


@dataclass
class Day:
    """A producer's commits while records of 1 KiB come evenly, on a clock of its own."""

    rate: float
    linger: Linger
    seconds: float = 600.0
    waited: bool = False
    commits: int = 0
    late: float = 0.0
    """The longest that a record waited."""

    def play(self) -> Day:
        """As producer.py does: a commit begins at its first record, and ends by its age or when it is full."""
        clock, batch = ManualClock(), list[float]()
        while clock.monotonic() < self.seconds:
            clock.move(1 / self.rate)
            while batch and (due := batch[0] + self.linger.left(0.0, waited=self.waited)) <= clock.monotonic():
                self._commit(batch, due)
            batch.append(clock.monotonic())
            if len(batch) * RECORD >= CHUNK_BYTES:
                self._commit(batch, clock.monotonic())
        return self

    def _commit(self, batch: list[float], now: float) -> None:
        self.late = max(self.late, now - batch[0])
        self.linger.gathered(len(batch) * RECORD, now)
        self.commits += 1
        batch.clear()

    @property
    def a_day(self) -> float:
        return self.commits * 86_400 / self.seconds


RECORD = 1024
LEVELS = {0.1: 8_640, 1.5: 64_800, 10: 82_000, 100: 85_600, 1024: 172_800, 5 * 1024: 864_000, 20 * 1024: 864_000}
"""Records a second, and the commits a day."""


@pytest.mark.parametrize("rate", LEVELS)
def test_the_less_comes_the_fewer_commits_are_made_and_no_record_is_later_than_the_longest(rate: float) -> None:
    seconds = 600.0 if rate < 100 else 30.0
    day = Day(rate, Linger.of(None, local=False), seconds).play()
    assert day.a_day == pytest.approx(LEVELS[rate], rel=0.06)
    assert day.late <= 1.0 + 1e-9
    short = Day(rate, Linger(0.1), seconds).play()
    assert day.commits <= short.commits
    assert day.commits < short.commits or not 10 <= rate < 5 * 1024


def test_it_grows_as_traffic_falls() -> None:
    linger, found = Linger(0.1, 1.0), []
    for rate in (20_000, 5_000, 2_000, 1_000, 500, 100, 1):
        Day(rate, linger, 10).play()
        found.append(round(linger.seconds, 2))
    assert found == [0.1, 0.1, 0.26, 0.51, 1.0, 1.0, 1.0]
    Day(20_000, linger, 10).play()
    assert linger.seconds == pytest.approx(0.1, rel=0.1), "and shrinks as it rises"


def test_after_a_night_the_first_record_waits_no_longer_than_the_longest() -> None:
    linger = Linger(0.1, 1.0)
    for now in (0.0, 0.1, 40_000.0):
        linger.gathered(RECORD, now)
    assert linger.left(0.0, waited=False) == 1.0
    assert linger.left(0.7, waited=False) == pytest.approx(0.3)
    assert linger.left(3.0, waited=False) == 0


def test_who_waits_for_a_record_waits_for_the_shortest_only() -> None:
    assert Day(0.5, Linger(0.1, 1.0), waited=True).play().late == pytest.approx(0.1)


def test_none_waits_for_nobody() -> None:
    assert Linger().left(0.0, waited=False) == 0


def test_a_fixed_one_stays() -> None:
    linger = Linger(0.3)
    for rate in (1, 10_000):
        Day(rate, linger, 10).play()
        assert linger.seconds == linger.left(0.0, waited=True) == linger.left(0.0, waited=False) == 0.3


def test_less_than_nothing() -> None:
    with pytest.raises(BadSetting, match="at least 0 seconds, not -1"):
        Linger(-1)


@pytest.mark.parametrize(
    ("given", "local", "bounds"), [(None, True, (0, 0)), (None, False, (0.1, 1.0)), (5, False, (5, 5))]
)
def test_what_a_producer_takes(given: float | None, local: bool, bounds: tuple[float, float]) -> None:
    linger = Linger.of(given, local=local)
    assert (linger.shortest, linger.longest) == bounds
