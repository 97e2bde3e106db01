"""Merging the heads of shards."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.streams.merge import Merge


class Counted:
    """A time that counts how often it is compared."""

    comparisons = 0

    def __init__(self, at: int) -> None:
        self.at = at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and self.at == other.at

    def __hash__(self) -> int:
        return hash(self.at)

    def __lt__(self, other: Counted) -> bool:
        Counted.comparisons += 1
        return self.at < other.at


def drained(merge: Merge) -> list[tuple[int, int]]:
    found = []
    while merge:
        reader: Any = merge.first()
        found.append((reader.buffer.popleft().created_at.at, reader.order))
        merge.advance()
    return found


def merged(*shards: list[int]) -> list[tuple[int, int]]:
    merge = Merge()
    for order, times in enumerate(shards):
        changes = deque(SimpleNamespace(created_at=Counted(at)) for at in times)
        merge.add(SimpleNamespace(buffer=changes, order=order))  # type: ignore[arg-type]
    return drained(merge)


def test_the_older_head_goes_first_and_ties_go_to_the_shard_met_first() -> None:
    assert merged([1, 3, 5], [1, 2, 5]) == [(1, 0), (1, 1), (2, 1), (3, 0), (5, 0), (5, 1)]


def test_a_shard_is_never_reordered() -> None:
    assert merged([5, 1, 4], [3]) == [(3, 1), (5, 0), (1, 0), (4, 0)]


@pytest.mark.parametrize("shards", [1, 2, 16, 256])
def test_comparisons_for_a_record_grow_with_the_logarithm_of_shards(shards: int) -> None:
    Counted.comparisons = 0
    records = 20 * shards
    found = merged(*([at * shards + n for at in range(20)] for n in range(shards)))
    assert found == sorted(found)
    assert len(found) == records
    assert Counted.comparisons / records <= 4 * (shards.bit_length() + 1)
