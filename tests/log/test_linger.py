"""How long a commit waits for company."""

from __future__ import annotations

import pytest

from tailrace.errors import BadSetting
from tailrace.log.linger import Linger


def wait(linger: Linger, arrivals: list[float]) -> float:
    """Play one wait for records that arrive at these seconds; gives how long it was."""
    age = 0.0
    while left := linger.left(age, sum(at <= age for at in arrivals)):
        age += left
    return age


def test_none_waits_for_nobody() -> None:
    assert wait(Linger(), [0.0]) == 0


def test_a_fixed_one_stays() -> None:
    linger = Linger(0.3)
    assert [wait(linger, [0.0, 0.2]) for _ in range(3)] == pytest.approx([0.3] * 3)
    assert [wait(linger, [0.0]) for _ in range(3)] == pytest.approx([0.3] * 3)


def test_it_grows_while_records_keep_coming_and_no_further() -> None:
    linger = Linger(0.1, 1.0)
    steady = [n / 100 for n in range(200)]
    assert [wait(linger, steady) for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_it_shrinks_when_nobody_came_late() -> None:
    """Sixteen threads that each wait for theirs come at once, and then no more."""
    linger = Linger(0.1, 1.0)
    linger.seconds = 1.0
    assert [wait(linger, [0.0] * 16) for _ in range(5)] == pytest.approx([1.0, 0.5, 0.25, 0.125, 0.1])


def test_a_flush_in_between_is_not_judged() -> None:
    linger = Linger(0.1, 1.0)
    assert linger.left(0.06, 1) == pytest.approx(0.04)
    linger.begin()
    assert wait(linger, [0.0, 0.07]) == pytest.approx(0.1)
    assert linger.seconds == pytest.approx(0.2), "the records of before the flush were not counted"


def test_less_than_nothing() -> None:
    with pytest.raises(BadSetting, match="at least 0 seconds, not -1"):
        Linger(-1)


@pytest.mark.parametrize(
    ("given", "local", "bounds"), [(None, True, (0, 0)), (None, False, (0.1, 1.0)), (5, False, (5, 5))]
)
def test_what_a_producer_takes(given: float | None, local: bool, bounds: tuple[float, float]) -> None:
    linger = Linger.of(given, local=local)
    assert (linger.shortest, linger.longest) == bounds
