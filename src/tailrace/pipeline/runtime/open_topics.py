"""Open topics: homes and topics that a Spark process opens once each."""

from __future__ import annotations

import os
from functools import lru_cache

from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.spark.runtime.homes import home_at


def open_home(url: str) -> Home:
    """The home of this URL, opened once in this process."""
    return home_at(url)


def open_topic(url: str, name: str) -> Topic:
    """A topic of a home, opened once in this process."""
    return _topic(url, name, os.getpid())


@lru_cache(maxsize=256)
def _topic(url: str, name: str, pid: int) -> Topic:
    return home_at(url).topic(name)
