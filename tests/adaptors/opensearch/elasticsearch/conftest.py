"""Fixtures for Elasticsearch: the tests of this folder run against it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import started
from tests.servers import elasticsearch as servers
from tests.servers.process import Server


@pytest.fixture(scope="session")
def search() -> Iterator[Server]:
    """Elasticsearch 8.19, one node."""
    with started("Elasticsearch", servers.elasticsearch) as server:
        yield server
