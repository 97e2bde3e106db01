"""Homes that this process keeps open, each opened once.  A forked process opens its own."""

from __future__ import annotations

import gc
import os

from tailrace.home.home import Home, open

MAX_OPEN_HOMES = 8
"""The most homes that a process keeps open: a driver that visits hundreds would run out of file descriptors."""
_open: dict[tuple[int, str], Home] = {}


def is_open(url: str) -> bool:
    """Whether this process has the home of this URL open."""
    return (os.getpid(), url) in _open


def open_once(url: str) -> Home:
    """The home of this URL, opened once in this process.

    When too many are open, the least recently used one is released; it closes when its last reader ends."""
    key = (os.getpid(), url)
    home = _open.pop(key, None)
    if home is None:
        home = open(url)
        _let_go()
    _open[key] = home
    return home


def _let_go() -> None:
    """Release the least recently used homes, so that there is room for one more."""
    if len(_open) < MAX_OPEN_HOMES:
        return
    while len(_open) >= MAX_OPEN_HOMES:
        _open.pop(next(iter(_open)), None)
    gc.unfreeze()  # a home refers to itself, so that only the garbage collector closes it
    gc.collect()
