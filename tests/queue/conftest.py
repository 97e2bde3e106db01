"""Homes for the queue's tests: on a disk, in memory, and on a DynamoDB server."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.log.homes import HERE, homes

home = homes(HERE)
"""A home on a disk, and one in memory."""


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something is so; a busy machine may take its time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.005)
