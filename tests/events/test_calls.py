"""The Python calls of appending one event: an upper bound, so that they do not creep back."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import tailrace
from tailrace.events import Event
from tests.calls import ROUNDS, usual_calls

MOST = 205
"""A little more than Python 3.11 needs; later versions call no function for a comprehension."""


def test_one_event(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        stream, version = home.events().stream("Cart-1"), count()
        stream.append([Event("Opened")], expected=next(version))
        assert usual_calls(lambda: stream.append([Event("Added", b"x" * 40)], expected=next(version))) <= MOST
        assert stream.version == 1 + ROUNDS
