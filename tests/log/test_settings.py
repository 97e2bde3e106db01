"""Settings: what is allowed, and what a typo is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import BadSetting
from tailrace.log.settings import TopicSettings, settings


def test_defaults() -> None:
    made = settings({})
    assert made == TopicSettings()
    assert (made.compression, made.max_record_bytes, made.retention_ms, made.compact) == ("none", 16 << 20, None, False)


def test_some_are_changed_and_the_others_kept() -> None:
    base = settings({"compression": "zstd", "retention_ms": 5})
    assert settings({"retention_ms": None}, base) == settings({"compression": "zstd"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"compresion": "lz4"}, "a topic has no 'compresion'; did you mean 'compression'?"),
        ({"zzz": 1}, "has no 'zzz'; there are: compact, compact_by, compression, max_record_bytes"),
        ({"compression": "gzip"}, "gzip"),
        ({"max_record_bytes": 0}, "max_record_bytes is a number from 1 to 1073741824, not 0"),
        ({"max_record_bytes": (1 << 30) + 1}, "max_record_bytes"),
        ({"max_record_bytes": "5"}, "max_record_bytes"),
        ({"max_record_bytes": 1.5}, "max_record_bytes"),
        ({"max_record_bytes": None}, "max_record_bytes"),
        ({"retention_ms": 0}, "retention_ms is a number from 1"),
        ({"retention_bytes": -1}, "retention_bytes is a number from 1"),
        ({"retention_bytes": 2**63}, "retention_bytes"),
        ({"merge_bytes": 1000}, "merge_bytes is a number from 65536 to 1073741824"),
        ({"merge_bytes": "much"}, "merge_bytes is a whole number, or null for no limit"),
        ({"compact_by": "value"}, "compact_by is key or namespace, not 'value'"),
        ({"tombstone_ms": -1}, "tombstone_ms is a number from 0"),
        ({"compact": 1}, "compact"),
    ],
)
def test_what_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting) as refused:
        settings(given)
    assert says in str(refused.value)
