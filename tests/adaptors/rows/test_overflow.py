"""Batches that do not fit into memory."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

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
        assert taken[-1].equals(expected[9])
        assert [one.equals(e) for one, e in zip(taken[7:2:-2], expected[7:2:-2], strict=True)] == [True] * 3
        with pytest.raises(IndexError):
            taken[10]


CUT = """
import os
from tailrace.adaptors.rows.overflow import Overflow
from tailrace.errors import Unavailable
from tests.adaptors.rows.test_overflow import batch
held = Overflow(0)
for n in range(2000):
    held.append(batch(n))
file = os.dup(held._file.fileno())
taken = held.take()
os.ftruncate(file, 100_000)
try:
    print(sum(one.column(0)[0].as_py() for one in taken))
except Unavailable as error:
    print("refused:", error)
"""


def test_a_part_that_cannot_be_read_is_an_error() -> None:
    """A mapped file that was cut, or has a bad sector, ends the process."""
    done = subprocess.run([sys.executable, "-c", CUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "refused: a temporary file" in done.stdout


def test_they_can_be_forgotten() -> None:
    held = Overflow(0)
    held.append(batch(1))
    held.close()
    assert held.take() == []


FULL = """
import resource
from tailrace.adaptors.postgres.source import decoder
from tailrace.adaptors.rows.overflow import Overflow
from tailrace.errors import DiskFull
from tests.adaptors.rows.test_overflow import batch

def fill(held, close):
    try:
        held()
        print("it had room")
    except DiskFull as error:
        print("refused:", error)
    close()

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
held = Overflow(0)
fill(lambda: [[held.append(batch(n)) for n in range(1000)], held.take()], held.close)
decoder.MAX_TRANSACTION_BYTES_IN_MEMORY = 1000
streamed = decoder.Streamed()
fill(lambda: [streamed.add(b"I" + bytes(1000), 0) for n in range(1000)], streamed.close)
"""


def test_a_full_disk_is_one_to_wait_for() -> None:
    """An error of the system itself would end the run, which should read the transaction again once there is room."""
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    told = done.stdout.splitlines()
    assert [line.startswith("refused: disk full: a part of a large transaction") for line in told] == [True, True]
