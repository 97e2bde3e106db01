"""Cores: the partitions of a topic worked on at once.  Arrow and the checksums let other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

P = TypeVar("P")
T = TypeVar("T")

WORTH = 4 * 1024 * 1024
"""Bytes below which a thread costs more than it saves."""


def at_once(work: Callable[[P], T], parts: Iterable[P], size: int) -> list[T]:
    """What `work` gives for each part, in their order: on all cores, if all have so many bytes that it is worth it."""
    todo = list(parts)
    if size < WORTH or len(todo) < 2:
        return [work(part) for part in todo]
    with ThreadPoolExecutor(min(len(todo), os.cpu_count() or 1), "tailrace-upkeep") as pool:
        return list(pool.map(work, todo))
