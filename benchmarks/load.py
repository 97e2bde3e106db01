"""The records every side gets: the same keys and values, in the same order."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

KEY, VALUE = 16, 200
BLOCK = 4 << 20
PARTITIONS = 8


@dataclass(frozen=True)
class Load:
    """Records with random, so incompressible, values; built before the clock starts."""

    count: int
    seed: int = 1
    entities: int = 0
    """How many different keys there are; 0: each record has another."""

    @cached_property
    def keys(self) -> list[bytes]:
        """A random key of 16 characters for each record."""
        draw = random.Random(self.seed)
        keys = [b"%016x" % draw.getrandbits(64) for _ in range(self.entities or self.count)]
        return draw.choices(keys, k=self.count) if self.entities else keys

    @cached_property
    def values(self) -> list[bytes]:
        """A random value of 200 bytes for each record."""
        draw = random.Random(self.seed + 1)
        return [draw.randbytes(VALUE) for _ in range(self.count)]

    @cached_property
    def places(self) -> list[int]:
        """A partition for each record, for the peers that leave partitioning to their callers."""
        return [zlib.crc32(key) % PARTITIONS for key in self.keys]

    @cached_property
    def batches(self) -> list[pa.RecordBatch]:
        """The records as Arrow batches of 4 MiB."""
        step = BLOCK // (KEY + VALUE)
        return [self.batch(start, start + step) for start in range(0, self.count, step)]

    def batch(self, start: int, end: int) -> pa.RecordBatch:
        """Some of the records as one Arrow batch."""
        columns = [pa.array(part[start:end], pa.binary()) for part in (self.keys, self.values)]
        return pa.record_batch(columns, names=["key", "value"])

    @cached_property
    def blocks(self) -> list[bytes]:
        """The same bytes without any format, in blocks of 4 MiB."""
        whole = b"".join(part for pair in self.pairs() for part in pair)
        return [whole[start : start + BLOCK] for start in range(0, len(whole), BLOCK)]

    def built(self) -> Load:
        """The same, with every form of it made now and not on the clock."""
        for form in (self.places, self.batches, self.blocks):
            assert form
        return self

    @property
    def size(self) -> int:
        """Bytes of all keys and values."""
        return self.count * (KEY + VALUE)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Each record's key and value."""
        return zip(self.keys, self.values, strict=True)


def fingerprint(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[int, int]:
    """How many records there are, and a sum over their bytes that no order changes."""
    count = total = 0
    for key, value in pairs:
        count += 1
        total += zlib.crc32(value, zlib.crc32(key))
    return count, total
