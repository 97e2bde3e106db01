"""Which of two runs may go on, and whether a batch has been finished already."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.turn import is_repeat
from tailrace.errors import Fenced


def mark(low: int, **ahead: int) -> dict[str, Any]:
    return {"low": low, "ahead": ahead}


def judged(new: dict[str, Any], old: dict[str, Any], *, epoch: int = 1, before: int = 1) -> str:
    try:
        return "repeat" if is_repeat((before, old), Who("p", "w", epoch), new) else "new"
    except Fenced:
        return "refused"


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        ({"0": 5}, {"0": 5}, "repeat"),
        ({"0": 6}, {"0": 5}, "new"),
        ({"0": 4}, {"0": 5}, "refused"),
        ({"0": 6, "1": 1}, {"0": 5, "1": 2}, "refused"),
        ({"0": 0}, {}, "new"),
        ({}, {"0": 0}, "refused"),
        ({"0": mark(5)}, {"0": mark(3, a=5)}, "new"),
        ({"0": mark(5)}, {"0": mark(3, a=6)}, "refused"),
        ({"0": mark(2, a=9)}, {"0": mark(3, a=9)}, "refused"),
        ({"0": mark(3, a=9)}, {"0": mark(3)}, "new"),
        ({"0": mark(3, a=9)}, {"0": mark(3, a=9)}, "repeat"),
        ({"0": mark(3, b=9)}, {"0": mark(3, a=9)}, "refused"),
    ],
)
def test_offsets_of_one_epoch_only_rise(new: dict[str, Any], old: dict[str, Any], found: str) -> None:
    assert judged(new, old) == found


def test_epochs_come_first() -> None:
    assert judged({"0": 1}, {"0": 9}, epoch=2) == "new"
    assert judged({"0": 9}, {"0": 9}, epoch=2) == "new"
    assert judged({"0": 99}, {"0": 9}, epoch=1, before=2) == "refused"
    assert judged({}, {}, epoch=0, before=-1) == "new"


def test_the_refusals_say_what_to_do() -> None:
    with pytest.raises(Fenced, match=r"another run of the writer 'w' has begun \(epoch 2\); this one must stop"):
        is_repeat((2, {}), Who("p", "w", 1), {})
    with pytest.raises(Fenced, match="the writer 'w' has finished more than this batch already; it must not go back"):
        is_repeat((1, {"0": 2}), Who("p", "w", 1), {"0": 1})
