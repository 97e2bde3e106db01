"""Which of two runs may go on."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.postgres.state import compare, judge
from tailrace.errors import Fenced


@pytest.mark.parametrize(
    ("new", "old", "order"),
    [
        ({"0": 5}, {"0": 5}, 0),
        ({"0": 6}, {"0": 5}, 1),
        ({"0": 4}, {"0": 5}, -1),
        ({"0": 6, "1": 1}, {"0": 5, "1": 2}, -1),
        ({"0": 0}, {}, 1),
        ({}, {"0": 0}, -1),
        ({}, {}, 0),
        ({"0": {"low": 5, "ahead": {}}}, {"0": {"low": 3, "ahead": {"a": 5}}}, 1),
        ({"0": {"low": 5, "ahead": {}}}, {"0": {"low": 3, "ahead": {"a": 6}}}, -1),
        ({"0": {"low": 3, "ahead": {"a": 9}}}, {"0": {"low": 3, "ahead": {}}}, 1),
        ({"0": {"low": 3, "ahead": {"a": 9}}}, {"0": {"low": 3, "ahead": {"a": 9}}}, 0),
        ({"0": {"low": 3, "ahead": {"b": 9}}}, {"0": {"low": 3, "ahead": {"a": 9}}}, -1),
    ],
)
def test_offsets(new: dict[str, Any], old: dict[str, Any], order: int) -> None:
    assert compare(new, old) == order


def test_epochs_come_first() -> None:
    assert judge(Who("p", "w", 2), {"0": 1}, 1, {"0": 9}) == "new"
    assert judge(Who("p", "w", 1), {"0": 9}, 1, {"0": 9}) == "done"
    assert judge(Who("p", "w", 0), {}, -1, {}) == "new"
    for epoch, offset in ((1, 99), (2, 8)):
        with pytest.raises(Fenced):
            judge(Who("p", "w", epoch), {"0": offset}, 2, {"0": 9})
