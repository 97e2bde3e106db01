"""Readers that do not wait: the servers of tests have no limits."""

from __future__ import annotations

import pytest

from tailrace.adaptors.dynamodb.source import follower


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for tables often, and ask shards at once."""
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(follower, "ROUND_SECONDS", 0.01)
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.02)
