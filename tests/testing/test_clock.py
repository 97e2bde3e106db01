import pytest

from tailrace.testing import ManualClock


def test_time_passes_only_by_hand_and_on_both_clocks():
    clock = ManualClock(monotonic=5.0, wall=100.0)
    assert (clock.monotonic(), clock.wall()) == (5.0, 100.0)
    clock.move(2.5)
    assert (clock.monotonic(), clock.wall()) == (7.5, 102.5)


def test_only_the_wall_clock_can_be_set_back():
    clock = ManualClock(wall=100.0)
    clock.set_wall(40.0)
    assert (clock.monotonic(), clock.wall()) == (0.0, 40.0)
    with pytest.raises(ValueError, match="backwards"):
        clock.move(-1)
