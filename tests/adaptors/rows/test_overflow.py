"""Batches that do not fit into memory."""

from __future__ import annotations

import pyarrow as pa

from tailrace.adaptors.rows.overflow import Overflow


def batch(n: int, name: str = "a") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([n] * 100, pa.int64())}, metadata={"n": str(n)})


def test_small_ones_stay_in_memory() -> None:
    held = Overflow(10_000)
    assert not held
    for n in range(5):
        held.append(batch(n))
    assert held
    assert held._file is None
    assert held.take() == [batch(n) for n in range(5)]
    assert not held


def test_large_ones_go_to_disk_and_come_back() -> None:
    held = Overflow(1000)
    for _ in range(2):
        expected = [batch(n, "a" if n % 3 else "b") for n in range(10)]
        for one in expected:
            held.append(one)
        assert held._file is not None
        taken = held.take()
        assert [t.equals(e, check_metadata=True) for t, e in zip(taken, expected, strict=True)] == [True] * 10
        for one in taken:
            one.validate(full=True)


def test_they_can_be_forgotten() -> None:
    held = Overflow(0)
    held.append(batch(1))
    held.close()
    assert held.take() == []
