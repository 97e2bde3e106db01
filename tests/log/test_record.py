"""Records: keys to partitions, timestamps, attributes."""

from __future__ import annotations

import hashlib
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import BadRecord
from tailrace.log.record import (
    MAX_TIMESTAMP,
    Mode,
    Op,
    Record,
    attributes,
    check_bytes,
    hashed,
    milliseconds,
    partition_of,
)

VECTORS = {b"id-12345": 7, b"partition-key": 4, b"a": 9, b"b": 5, b"c": 8}


@pytest.mark.parametrize(("key", "partition"), VECTORS.items())
def test_the_partition_of_a_key(key: bytes, partition: int) -> None:
    assert partition_of(key, 10) == partition
    assert hashed([key], 10) == [partition]
    assert partition_of(key, 1) == 0
    assert hashed([key], 1) == [0]


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 128))
def test_every_way_to_hash_gives_the_same_partition(keys: list[bytes], partitions: int) -> None:
    right = [int(hashlib.sha256(key).hexdigest(), 16) % partitions for key in keys]
    assert hashed(keys, partitions) == right
    assert [partition_of(key, partitions) for key in keys] == right


def test_large_keys_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for n in range(2000):
            partition_of(b"%d" % n * 2000, 8)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_timestamps() -> None:
    assert milliseconds(0) == 0
    assert milliseconds(MAX_TIMESTAMP) == MAX_TIMESTAMP
    assert milliseconds(datetime(2001, 9, 9, 1, 46, 40, 123000, UTC)) == 1_000_000_000_123
    assert milliseconds(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert milliseconds(datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)) == MAX_TIMESTAMP


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59), timezones=st.just(UTC)))
def test_a_records_time_is_the_timestamp_it_was_given(when: datetime) -> None:
    when = when.replace(microsecond=when.microsecond // 1000 * 1000)
    assert Record("t", 0, 0, milliseconds(when), None, None).time == when


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (-1, "the timestamp -1 is outside 1970 to 9999"),
        (MAX_TIMESTAMP + 1, "outside 1970 to 9999"),
        (datetime(1969, 12, 31, tzinfo=UTC), "outside 1970 to 9999"),
        (datetime(2020, 1, 1), "has no time zone; say"),
        (1.5, "milliseconds since 1970 or a datetime, not a float"),
        (True, "not a bool"),
        ("2020", "not a str"),
    ],
)
def test_a_timestamp_out_of_range_or_of_another_kind(bad: object, says: str) -> None:
    with pytest.raises(BadRecord, match=says):
        milliseconds(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("op", Op)
def test_mode_and_op_share_a_byte(mode: Mode, op: Op) -> None:
    stored = attributes(mode, op)
    assert stored == mode + 4 * op
    record = Record("t", 0, 0, 0, None, None, (), stored)
    assert (record.mode, record.op) == (mode, op)


@pytest.mark.parametrize(("mode", "op"), [(3, 0), (0, 6), (-1, 0), ("sync", 0), (0, None)])
def test_a_mode_or_op_that_there_is_not(mode: object, op: object) -> None:
    with pytest.raises(BadRecord, match=r"mode .*0 copy, 1 sync, 2 complete.*op .*0 insert.*5 skip"):
        attributes(mode, op)  # type: ignore[arg-type]


def test_keys_and_values_are_bytes() -> None:
    check_bytes("key", None)
    check_bytes("key", b"")
    with pytest.raises(BadRecord, match=r"a record's key is bytes or None, not a str; encode it: key\.encode\(\)"):
        check_bytes("key", "a")
    with pytest.raises(BadRecord, match="a record's value is bytes or None, not a dict"):
        check_bytes("value", {})
