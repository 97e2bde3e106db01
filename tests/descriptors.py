"""A small limit of file descriptors, as many systems have it: what keeps too many of them open fails."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Iterator
from itertools import count, islice

FEW = 256


def limit_for(free: int) -> int:
    """The limit with which a process can open so many more files than it has open now."""
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    return next(islice((number for number in count() if number not in used), free - 1, None)) + 1


@contextlib.contextmanager
def few_descriptors(most: int = FEW) -> Iterator[None]:
    """At most so many file descriptors for the length of a block, in this process and those it starts.

    Those that are open already (servers of the run, what other tests left to the garbage collector) do not count.
    """
    gc.collect()
    limit = limit_for(most)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard) if hard >= 0 else limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
