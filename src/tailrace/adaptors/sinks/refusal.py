"""Refusals: finds the row of a batch that a sink refuses, by writing ever fewer of the rows."""

from __future__ import annotations

from collections.abc import Callable


def first_refused(
    rows: int, error: BaseException, attempt: Callable[[int, int], BaseException | None]
) -> tuple[int, BaseException]:
    """Return the number of the first row that the sink refuses, and the error that this row causes.

    `error` is what all rows together cause.  `attempt` must write the rows from one number up to another, undo that,
    and return the error, or None if the sink takes them."""
    low, high = 0, rows
    while high - low > 1:
        middle = (low + high) // 2
        failed = attempt(0, middle)
        if failed is not None:
            error, high = failed, middle
        else:
            low = middle
    return low, error
