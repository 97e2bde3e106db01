"""Keys placed as Kafka's producers place them: a reference, and topics made so in tests of all that appends."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.log.settings import settings
from tailrace.log.topic import Topic

M = 0x5BD1E995
MASK = 0xFFFFFFFF


def reference(key: bytes) -> int:
    """Murmur2 written down as its author did, byte for byte, with Kafka's seed; as an unsigned number."""
    h = 0x9747B28C ^ len(key)
    left = key
    while len(left) >= 4:
        k = left[0] | left[1] << 8 | left[2] << 16 | left[3] << 24
        k = (k * M) & MASK
        k ^= k >> 24
        k = (k * M) & MASK
        h = (h * M) & MASK
        h ^= k
        left = left[4:]
    if len(left) == 3:
        h ^= left[2] << 16
    if len(left) >= 2:
        h ^= left[1] << 8
    if len(left) >= 1:
        h ^= left[0]
        h = (h * M) & MASK
    h ^= h >> 13
    h = (h * M) & MASK
    return h ^ (h >> 15)


def kafka_partition(key: bytes, partitions: int) -> int:
    """Where Kafka's default partitioner puts a key."""
    return (reference(key) & 0x7FFFFFFF) % partitions


def kafka_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on topics are made with the partitioner murmur2, whoever makes them."""

    def with_murmur2(given: dict[str, Any], base: Any = None) -> Any:
        return settings({"partitioner": "murmur2", **given} if base is None else given, base)

    monkeypatch.setattr("tailrace.log.catalog.settings", with_murmur2)


def keys_in_place(topic: Topic, partitions: int | None = None) -> int:
    """Checks that each record with a key is where Kafka would have it; returns how many there are."""
    count = 0
    for fetched in topic.fetch():
        keys = fetched.data.column("key").to_pylist()
        wanted = {kafka_partition(key, partitions or topic.partitions) for key in keys if key is not None}
        assert wanted <= {fetched.partition}
        count += sum(key is not None for key in keys)
    return count
