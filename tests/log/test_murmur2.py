"""Murmur2: the hashes and partitions that Kafka's own tests, and librdkafka's, expect."""

from __future__ import annotations

import random

import pytest

from tailrace.log.murmur2 import murmur2
from tailrace.log.record import MAX_CACHED_KEY_BYTES, hashed, partition_of
from tests.log.partitioning import kafka_partition, reference

KAFKA = {
    b"21": -973932308, b"foobar": -790332482, bytes([12, 42, 56, 24, 109, 111]): 274204207,
    b"a-little-bit-long-string": -985981536, b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, b"abc": 479470107,
}  # fmt: skip
"""Of UtilsTest.testMurmur2: signed numbers."""
LIBRDKAFKA = {
    b"kafka": 0xD067CF64, b"giberish123456789": 0x8F552B0C, b"1234": 0x9FC97B14, b"234": 0xE7C009CA,
    b"34": 0x873930DA, b"4": 0x5A4B5CA1, b"": 0x106E08D9,
}  # fmt: skip


def test_the_hashes_that_kafka_expects() -> None:
    for key, hash in KAFKA.items():
        assert murmur2(key) == reference(key) == hash & 0xFFFFFFFF
    for key, hash in LIBRDKAFKA.items():
        assert murmur2(key) == reference(key) == hash


def test_keys_of_all_lengths() -> None:
    source = random.Random(7)
    for length in range(300):
        key = source.randbytes(length)
        assert murmur2(key) == reference(key), key
    long = source.randbytes(100_003)
    assert murmur2(long) == reference(long)


@pytest.mark.parametrize("partitions", [1, 2, 3, 24, 128])
def test_partitions(partitions: int) -> None:
    keys = [*KAFKA, *LIBRDKAFKA, b"x" * MAX_CACHED_KEY_BYTES, b"x" * (MAX_CACHED_KEY_BYTES + 1)]
    right = [kafka_partition(key, partitions) for key in keys]
    assert [partition_of(key, partitions, "murmur2") for key in keys] == right
    assert hashed(keys, partitions, "murmur2") == right


def test_a_partitioner_never_answers_for_the_other() -> None:
    for _ in range(2):  # the second time from what is remembered
        assert partition_of(b"id-12345", 10) == 7
        assert partition_of(b"foobar", 10, "murmur2") == 6
        assert partition_of(b"foobar", 10) == 4
