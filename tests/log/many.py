"""Very many schedules, on all cores: how many a second, and which seeds, is printed as it goes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context

from tailrace.testing import Scenario, check_schedules
from tests.log import tending
from tests.log.scenarios import SCENARIOS, TABLES, TORN, small_pages

AT_ONCE = 100
"""Seeds of one scenario that a process takes at a time."""
FIRST = 1000
"""Below are those of the tests."""
PAUSE = 30.0
"""Seconds between two lines."""


def pieces(names: list[str], first: int) -> Iterator[tuple[str, str, int]]:
    """(scenario, how small chunks are kept, first seed), without end."""
    for seed in count(first, AT_ONCE):
        for name in names:
            for kept in TABLES:
                yield name, kept, seed


def work(piece: tuple[str, str, int]) -> int:
    """In a process of its own: some schedules; gives how many."""
    name, kept, first = piece
    scenario = {**SCENARIOS, **tending.SCENARIOS}[name]
    with small_pages():
        return check_schedules(scenario, range(first, first + AT_ONCE), table=TABLES[kept], torn=TORN[kept])


def run_many(wanted: int, scenarios: Mapping[str, Scenario], first: int = FIRST) -> float:
    """So many schedules from a seed on, spread evenly over the scenarios; gives the rate.  A violation is raised."""
    todo = list(islice(pieces(list(scenarios), first), -(-wanted // AT_ONCE)))
    done, began, last = 0, time.monotonic(), 0.0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for piece, some in zip(todo, pool.map(work, todo), strict=True):
            done, now = done + some, time.monotonic() - began
            if now - last > PAUSE or done >= wanted:
                last = now
                seeds = f"seeds {first} to {piece[2] + AT_ONCE - 1}"
                print(f"{done:,} schedules clean, {done / now:.0f}/s, {seeds}", flush=True)
    return done / (time.monotonic() - began)
