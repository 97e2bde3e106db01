"""Commit times: how long the commits take that a server makes for its clients."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["records", "messages", "events"]
KINDS: tuple[Kind, ...] = ("records", "messages", "events")
NEWEST = 1000
"""How many of the last commits the highest times are taken from."""


class CommitTimes:
    """The number of commits, their time in all, and the time that 99 % of the newest ones have not exceeded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = dict.fromkeys(KINDS, 0)
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._newest: dict[Kind, deque[float]] = {kind: deque(maxlen=NEWEST) for kind in KINDS}

    @contextmanager
    def timed(self, kind: Kind) -> Iterator[None]:
        """Measure a block that commits something; a block that raises is not counted."""
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        with self._lock:
            self._count[kind] += 1
            self._seconds[kind] += took
            self._newest[kind].append(took)

    def now(self) -> dict[Kind, tuple[int, float, float]]:
        """Return for each kind how many commits there were, how many seconds they took, and the 99th percentile."""
        with self._lock:
            return {kind: (self._count[kind], self._seconds[kind], _p99(self._newest[kind])) for kind in KINDS}


def _p99(took: deque[float]) -> float:
    return sorted(took)[len(took) * 99 // 100] if took else 0.0
