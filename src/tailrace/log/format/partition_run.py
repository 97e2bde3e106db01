"""PartitionRun: one partition's records in a chunk, as the chunk's entry in the head has them.

This module needs no Arrow, so a command that only reads heads, such as `tailrace topic list`, does not load it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Compression: TypeAlias = Literal["none", "lz4", "zstd"]
"""How the batches of a run are compressed."""
CompactBy: TypeAlias = Literal["key", "namespace"]


class PartitionRun(Struct, frozen=True, array_like=True):
    """One partition's records in a chunk: how many there are, where they lie, their checksum, their latest timestamp,
    and how many milliseconds before it the earliest one is."""

    partition: int
    count: int
    position: int
    length: int
    crc: int
    latest: int
    span: int
