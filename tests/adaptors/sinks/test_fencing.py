"""Which of two runs may go on, and whether a batch has been finished already."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import Fenced


def mark(low: int, **ahead: int) -> dict[str, Any]:
    return {"low": low, "ahead": ahead}


def judged(new: dict[str, Any], old: dict[str, Any], *, epoch: int = 1, before: int = 1) -> str:
    try:
        return "repeat" if Fence(before, old).is_repeat(Who("p", "w", epoch), new) else "new"
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
        Fence(2).admit(Who("p", "w", 1))
    with pytest.raises(Fenced, match="the writer 'w' has finished more than this batch already; it must not go back"):
        Fence(1, {"0": 2}).is_repeat(Who("p", "w", 1), {"0": 1})


def test_a_claim_keeps_the_offsets_and_forgets_nothing() -> None:
    claimed = Fence(1, {"0": 5}).claim(Who("p", "w", 2))
    assert claimed == Fence(2, {"0": 5}, claimed=True)
    assert claimed.restored() == {"epoch": 2, "offsets": {"0": 5}}
    assert claimed.claim(Who("p", "w", 2)) is None
    with pytest.raises(Fenced):
        claimed.claim(Who("p", "w", 1))


def test_after_a_claim_the_same_offsets_are_no_repeat() -> None:
    """The batch that reached them was the earlier run's: this one may deliver it again, as an operator may want."""
    claimed = Fence(2, {"0": 5}, claimed=True)
    assert not claimed.is_repeat(Who("p", "w", 2), {"0": 5})
    assert not claimed.is_repeat(Who("p", "w", 2), {"0": 3})
    assert claimed.finish(Who("p", "w", 2), {"0": 3}) == Fence(2, {"0": 3})
    assert Fence().restored() is None
