"""Many chunks and few file descriptors: reading and upkeep hold none."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import TooManyFiles
from tests.descriptors import FEW

CHUNKS = 2 * FEW


def test_more_chunks_than_descriptors_are_held_merged_and_read_again(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd")) < CHUNKS
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("t", 1)
        for n in range(CHUNKS):
            topic.append([(None, b"%06d" % n + b"x" * 70_000)])
        held = list(topic.read())
        assert sum(batch.num_rows for batch in held) == CHUNKS
        (done,) = home.upkeep()
        assert not done.error
        assert [int((record.value or b"")[:6]) for record in topic.records()] == list(range(CHUNKS))
        assert not home.scrub().damages


def test_no_descriptor_left_is_said_at_once(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("t", 1)
        topic.append([(None, b"x" * 70_000)])
        home.store.sleep = lambda seconds: pytest.fail("it waits for a descriptor")
        taken = []
        try:
            while True:
                try:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
            with pytest.raises(TooManyFiles, match=r"may have \d+ at once; raise the limit .*ulimit -n"):
                topic.append([(None, b"y" * 70_000)])
            with pytest.raises(TooManyFiles):
                list(topic.read())
        finally:
            for descriptor in taken:
                os.close(descriptor)
        topic.append([(None, b"z" * 70_000)])
        assert [(record.value or b"")[:1] for record in topic.records()] == [b"x", b"z"]
