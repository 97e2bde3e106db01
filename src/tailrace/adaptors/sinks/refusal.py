"""Refusals: which row of a batch a sink refuses, found by writing fewer and fewer of them."""

from __future__ import annotations

from collections.abc import Callable


def first_refused(
    rows: int, error: BaseException, attempt: Callable[[int, int], BaseException | None]
) -> tuple[int, BaseException]:
    """The number of the first row that is refused, and the error it causes.

    All rows together cause `error`.  `attempt` writes those from one number up to another and takes them back; it gives
    the error, or None if they can be written."""
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        failed = attempt(0, middle)
        if failed is not None:
            error, high = failed, middle
        else:
            low = middle
    return low, error
