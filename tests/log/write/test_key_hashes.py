"""Key hashes: a column is hashed as its keys are one by one, whatever their lengths, offsets and nulls."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.log.write import key_hashes
from tailrace.log.write.key_hashes import MIN_KEYS, murmur2_of, murmur2_partitions
from tailrace.log.write.record_batch import partitions_of
from tests.log.partitioning import kafka_partition, reference

SOURCE = random.Random(11)
MANY = 3 * MIN_KEYS


def column(keys: list[bytes | None]) -> pa.Array:
    """Keys as a slice of a longer column."""
    return pa.array([b"before", None, *keys, b"after"], pa.binary()).slice(2, len(keys))


@pytest.mark.parametrize("length", range(70))
def test_keys_of_one_length(length: int) -> None:
    keys: list[bytes | None] = [SOURCE.randbytes(length) for _ in range(MANY)]
    assert murmur2_of(column(keys)).to_pylist() == [reference(key or b"") for key in keys]


@pytest.mark.parametrize(
    "lengths",
    [lambda: SOURCE.choice([0, 1, 2, 3, 4, 5, 16]), lambda: SOURCE.randrange(40), lambda: SOURCE.choice([16, 1000])],
)
@pytest.mark.parametrize("count", [0, 1, 2, MIN_KEYS - 1, MIN_KEYS, 5000])
def test_keys_of_many_lengths(count: int, lengths: Callable[[], int]) -> None:
    keys: list[bytes | None] = [SOURCE.randbytes(lengths()) for _ in range(count)]
    assert murmur2_of(column(keys)).to_pylist() == [reference(key or b"") for key in keys]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64, 127, 128])
def test_partitions(partitions: int) -> None:
    keys: list[bytes | None] = [b"order-%d" % n for n in range(2000)]
    right = [kafka_partition(key or b"", partitions) for key in keys]
    found = murmur2_partitions(column(keys), partitions)
    assert (found.type, found.to_pylist()) == (pa.uint8(), right)
    assert partitions_of(column(keys), partitions, "murmur2").to_pylist() == right


@given(keys=st.lists(st.none() | st.binary(max_size=9), max_size=40), few=st.sampled_from([0, 2, 1000]))
def test_with_nulls_and_repeats(keys: list[bytes | None], few: int) -> None:
    before, key_hashes.MIN_KEYS = key_hashes.MIN_KEYS, few
    try:
        found = partitions_of(column(keys), 5, "murmur2").to_pylist()
    finally:
        key_hashes.MIN_KEYS = before
    assert found == [None if key is None else kafka_partition(key, 5) for key in keys]


def test_a_column_with_nulls_in_which_no_two_keys_are_alike() -> None:
    keys = [None if n % 3 == 0 else b"%d" % n for n in range(1000)]
    assert partitions_of(column(keys), 5, "murmur2").to_pylist() == [
        None if key is None else kafka_partition(key, 5) for key in keys
    ]
