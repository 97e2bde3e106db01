"""A home that is served, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tests.console.serving import Client, running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the home is."""
    return tmp_path / "home"


@pytest.fixture
def home(place: Path) -> Iterator[Home]:
    """The home, opened a second time by this process."""
    with tailrace.open(place) as opened:
        yield opened


@pytest.fixture
def client(home: Home, place: Path) -> Iterator[Client]:
    """An operator's client of a server of the home."""
    with running(place) as made:
        yield made
