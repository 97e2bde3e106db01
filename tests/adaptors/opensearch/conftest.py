"""Fixtures for OpenSearch: a node for the run, indexes of their own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.adaptors.opensearch.place import Place
from tests.conftest import started
from tests.servers import opensearch as servers
from tests.servers.process import Server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def search() -> Iterator[Server]:
    """OpenSearch 2.19, one node."""
    with started("OpenSearch", servers.opensearch) as server:
        yield server


@pytest.fixture
def place(search: Server) -> Iterator[Place]:
    """Indexes of a test: their names begin alike."""
    with Place(search.url, f"t{os.getpid()}-{next(_numbers)}-") as place:
        yield place
