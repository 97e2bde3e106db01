"""A topic's settings and their allowed values."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.errors import BadSetting, HomeError
from tailrace.log.format.partition_run import CompactBy, Compression
from tailrace.log.record import Partitioner


class TopicSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one topic. A change never touches records that are already stored."""

    compression: Compression = "none"
    """How chunks are compressed: "none", "lz4" or "zstd"."""
    max_record_bytes: int = 16 * 1024 * 1024
    """A record with a larger key + value + headers is refused."""
    retention_ms: int | None = None
    """Records older than this may be removed by upkeep; None: never."""
    retention_bytes: int | None = None
    """Above this size the oldest records may be removed by upkeep; None: never."""
    merge_bytes: int | None = 64 * 1024 * 1024
    """Upkeep merges small chunks into objects of at most this size; None: never."""
    compact: bool = False
    """Whether upkeep keeps only the last record of each key."""
    compact_by: CompactBy = "key"
    """Of what compaction keeps the last record: of each "key", or, for a pipeline's rows, of each "namespace"."""
    tombstone_ms: int = 24 * 3600 * 1000
    """Milliseconds for which a compacted topic keeps the marks of deleted keys."""
    partitioner: Partitioner = "sha256"
    """By which hash a key's partition is chosen: "sha256", or "murmur2" as Kafka's producers do. A topic keeps it."""


FIXED = frozenset({"partitioner"})
"""Settings that a topic keeps as it was made with."""
LOWEST = {"max_record_bytes": 1, "retention_ms": 1, "retention_bytes": 1, "merge_bytes": 1 << 16, "tombstone_ms": 0}
HIGHEST = {"max_record_bytes": 1 << 30, "merge_bytes": 1 << 30}
_LIMIT = "a whole number, or null for no limit"
_KINDS = {
    "partitioner": "sha256 or murmur2", "compression": "none, lz4 or zstd",
    "compact": "true or false", "compact_by": "key or namespace",
    "retention_ms": _LIMIT, "retention_bytes": _LIMIT, "merge_bytes": _LIMIT,
}  # fmt: skip


def settings(given: dict[str, Any], base: TopicSettings | None = None) -> TopicSettings:
    """Settings from names and values, over those of `base`; a typo or a bad value is refused with a hint."""
    known = {f.name for f in msgspec.structs.fields(TopicSettings)}
    for name in given:
        if name not in known:
            raise BadSetting.unknown("a topic", name, known)
    try:
        made = msgspec.convert({**msgspec.to_builtins(base or TopicSettings()), **given}, TopicSettings)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("$.")[2].strip("`")
        raise BadSetting(f"a topic's {name} is {_KINDS.get(name, 'a whole number')}, not {given.get(name)!r}") from None
    for name, lowest in LOWEST.items():
        value = getattr(made, name)
        if value is not None and not lowest <= value <= HIGHEST.get(name, 2**62):
            raise BadSetting(f"a topic's {name} is a number from {lowest} to {HIGHEST.get(name, 2**62)}, not {value}")
    for name in FIXED if base is not None else ():
        if (wanted := getattr(made, name)) != (has := getattr(base, name)):
            raise BadSetting(
                f"a topic's {name} stays as it was made, here {has}: with {wanted} a key would go to another partition "
                f"than its earlier records; make another topic with {name}={wanted}"
            )
    return made


def stored(settings: TopicSettings) -> dict[str, Any]:
    """Settings as the catalog stores them.

    Versions of tailrace that have no partitioners refuse a topic whose settings name one, instead of appending keys to
    wrong partitions; the others of its topics they may go on with."""
    found: dict[str, Any] = msgspec.to_builtins(settings)
    if settings.partitioner == "sha256":
        del found["partitioner"]
    return found


def from_stored(topic: str, found: dict[str, Any]) -> TopicSettings:
    """Settings from what the catalog stores; refuses those of a newer version."""
    try:
        return msgspec.convert({"partitioner": "sha256", **found}, TopicSettings)
    except msgspec.ValidationError as error:
        raise HomeError(
            f"topic {topic!r} has settings that this version of tailrace does not know ({error}): a newer one made it; "
            "upgrade: pip install -U tailrace"
        ) from None
