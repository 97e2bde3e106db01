"""Partitions worked on at once: in their order, where it is worth it, and what one raises is raised."""

from __future__ import annotations

import threading

import pytest

from tailrace.log import cores
from tailrace.log.cores import at_once


def where(part: int) -> tuple[int, int]:
    return part, threading.get_ident()


def test_much_goes_to_other_threads_and_comes_back_in_order() -> None:
    found = at_once(where, range(5), cores.WORTH)
    assert [part for part, _ in found] == [0, 1, 2, 3, 4]
    assert threading.get_ident() not in {thread for _, thread in found}


@pytest.mark.parametrize(("parts", "size"), [(range(5), cores.WORTH - 1), (range(1), cores.WORTH)])
def test_little_stays_where_it_is(parts: range, size: int) -> None:
    assert at_once(where, parts, size) == [(part, threading.get_ident()) for part in parts]


def test_what_one_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda part: 1 // part, (1, 0, 1), cores.WORTH)
