"""Murmur2: the hash by which Kafka's producers choose a key's partition.

Kafka's partition of a key is its hash without the highest bit, modulo the number of partitions.
`log.write.key_hashes` computes the same hash for a column of keys at once.
"""

from __future__ import annotations

import struct

SEED, FACTOR, BITS_32 = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF
"""Kafka takes the hash for a signed number, and its highest bit away."""


def murmur2(key: bytes) -> int:
    """The hash of a key, as an unsigned number of 32 bits."""
    count = len(key) // 4
    hash = (SEED ^ len(key)) & BITS_32
    for word in struct.unpack_from(f"<{count}I", key):
        word = word * FACTOR & BITS_32
        word = (word ^ word >> 24) * FACTOR
        hash = (hash * FACTOR ^ word) & BITS_32
    if rest := key[4 * count :]:
        hash = (hash ^ int.from_bytes(rest, "little")) * FACTOR & BITS_32
    hash = (hash ^ hash >> 13) * FACTOR & BITS_32
    return hash ^ hash >> 15
