"""Fixtures for DynamoDB: dynoxide and moto for the run, tables of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adaptors.dynamodb.place import Place
from tests.servers.process import Server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, dynoxide: Server) -> None:
    """Those that every program of AWS finds."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", dynoxide.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", dynoxide.secret)
    monkeypatch.setenv("AWS_REGION", dynoxide.region)


@pytest.fixture
def place(dynoxide: Server) -> Iterator[Place]:
    """No tables yet, on dynoxide."""
    with Place(dynoxide) as made:
        yield made


@pytest.fixture
def moto_place(moto: Server) -> Iterator[Place]:
    """No tables yet, on moto."""
    with Place(moto) as made:
        yield made
