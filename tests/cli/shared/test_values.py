"""Positions and settings as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tailrace.cli.shared.values import position, settings
from tailrace.errors import BadInput

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("17", 17),
        ("2026-01-31T12:00:00Z", NOW),
        ("2026-01-31T13:00+01:00", NOW.astimezone(timezone(timedelta(hours=1)))),
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("7d", NOW - timedelta(days=7)),
    ],
)
def test_positions(text: str, meant: object) -> None:
    assert position(text, NOW) == meant


def test_a_time_without_a_zone_is_local() -> None:
    found = position("2026-01-31")
    assert isinstance(found, datetime)
    assert found == datetime(2026, 1, 31).astimezone()


@pytest.mark.parametrize("text", ["", "-1", "now", "5 parsecs", "2026-13-01", "x7d"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(BadInput, match="is no position; there are: earliest, latest, an offset, a time"):
        position(text)


def test_settings() -> None:
    given = ["retention_ms=7d", "retention-bytes = 1.5GiB", "compact=true", "compression=lz4", "tombstone_ms=5000"]
    assert settings(given) == {
        "retention_ms": 604_800_000,
        "retention_bytes": 3 << 29,
        "compact": True,
        "compression": "lz4",
        "tombstone_ms": 5000,
    }
    assert settings(["compression=none", "retention_ms=null"]) == {"compression": "none", "retention_ms": None}
    assert settings(None) == {}
