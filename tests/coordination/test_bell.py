"""Bells: rung by this process, by a write to a file, or by neither."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.coordination.bell import IDLE_PAUSE_SECONDS, MIN_PAUSE_SECONDS, POLL_PAUSE_SECONDS, Bell
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.storage.tables import Absent, Key, Put

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of writes to a file this way")


@pytest.mark.parametrize("watched", [True, False])
def test_a_bell_is_an_event(tmp_path: Path, watched: bool) -> None:
    file = tmp_path / "journal"
    file.touch()
    bell = Bell(*([file] if watched else []))
    assert not bell.wait(0.001)
    bell.set()
    bell.set()
    assert bell.is_set()
    assert bell.wait(60)
    bell.clear()
    assert not bell.is_set()
    assert not bell.wait(0.001)
    ringing = threading.Timer(0.05, bell.set)
    ringing.start()
    assert bell.wait(60)
    ringing.join()
    bell.close()


@linux
def test_a_write_to_the_file_ends_the_wait_and_makes_the_next_looks_frequent(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.touch()
    bell = Bell(file)
    assert bell.pause == IDLE_PAUSE_SECONDS
    writing = threading.Timer(0.05, lambda: file.write_bytes(b"frame"))
    writing.start()
    began = time.monotonic()
    assert not bell.wait(60)
    assert time.monotonic() - began < 30
    assert MIN_PAUSE_SECONDS <= bell.pause <= IDLE_PAUSE_SECONDS
    assert not bell.is_set()
    writing.join()
    bell.close()


@linux
@pytest.mark.parametrize("written", ["journal", "watermark"])
def test_a_write_to_any_of_the_files_ends_the_wait(tmp_path: Path, written: str) -> None:
    files = [tmp_path / "journal", tmp_path / "watermark"]
    for file in files:
        file.touch()
    bell = Bell(*files)
    writing = threading.Timer(0.05, (tmp_path / written).write_bytes, [b"frame"])
    began = time.monotonic()
    writing.start()
    assert not bell.wait(60)
    assert time.monotonic() - began < 30
    writing.join()
    bell.close()


@linux
def test_a_bell_hears_when_a_commit_shows(tmp_path: Path) -> None:
    """The journal is written before, so a reader woken by it alone would have to look again and again."""
    with (
        closing(SqliteTable(SqliteDatabase(tmp_path / "tailrace.db"))) as reads,
        closing(SqliteTable(SqliteDatabase(tmp_path / "tailrace.db"))) as writes,
    ):
        journal, watermark = reads.commit_files
        assert journal.exists()
        bell, seen = Bell(watermark), reads.data_version()
        writing = threading.Timer(0.05, writes.write, [Put(Key("a"), {"n": 1}, (Absent(),))])
        began = time.monotonic()
        writing.start()
        bell.wait(60)
        assert time.monotonic() - began < 30
        assert reads.data_version() != seen
        writing.join()
        bell.close()


def test_a_closed_bell_can_be_rung_and_touches_no_descriptor_that_has_its_number_now(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.touch()
    bell = Bell(file)
    bell.close()
    bell.close()
    ends = [os.pipe() for _ in range(3)]
    bell.set()
    assert bell.is_set()
    assert bell.wait(60)
    bell.clear()
    for reading, writing in ends:
        os.set_blocking(reading, False)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
        os.close(reading)
        os.close(writing)


def test_without_a_file_to_watch_one_looks_often(tmp_path: Path) -> None:
    assert Bell(tmp_path / "missing").pause == Bell().pause == POLL_PAUSE_SECONDS
