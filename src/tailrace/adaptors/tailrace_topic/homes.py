"""Homes as a process has them open, once each."""

from __future__ import annotations

import os
from functools import lru_cache

from tailrace import home as homes
from tailrace.home import Home


def open_once(url: str) -> Home:
    """The home of this URL; a forked process opens its own."""
    return _opened(url, os.getpid())


@lru_cache(maxsize=16)
def _opened(url: str, pid: int) -> Home:
    return homes.open(url)
