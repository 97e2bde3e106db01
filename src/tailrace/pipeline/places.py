"""Places: homes and topics as a Spark process has them open, once each."""

from __future__ import annotations

import os
from functools import lru_cache

import tailrace.home
from tailrace.home import Home
from tailrace.log.topic import Topic


def open_home(url: str) -> Home:
    """The home of this URL, opened once in this process."""
    return _home(url, os.getpid())


def open_topic(url: str, name: str) -> Topic:
    """A topic of a home, opened once in this process."""
    return _topic(url, name, os.getpid())


@lru_cache(maxsize=16)
def _home(url: str, pid: int) -> Home:
    return tailrace.home.open(url)


@lru_cache(maxsize=256)
def _topic(url: str, name: str, pid: int) -> Topic:
    return _home(url, pid).topic(name)
