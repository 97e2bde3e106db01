"""The machine of the log once more, with keys: compaction and whole upkeeps are among the levers.

A record's key is who sent it.  What a reader finds has, of every key, the last record that was ever there above the
floor, at its offset; what is gone has a newer one of its key behind it.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tailrace.log.format.chunk import Chunk
from tailrace.log.read.reader import Reader
from tailrace.log.settings import TopicSettings
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend
from tailrace.log.write.buffer import Buffer
from tests.log.driving import Driven, view
from tests.log.test_machine import PACE, PARTITIONS, TOPIC, TOPICS, Life, Machine, Place

MERGES = TopicSettings(merge_bytes=2500, compact=True)
WHAT = ["compact", "compact", "tend"]
HURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def keyed(*records: tuple[int, bytes], partitions: int = 2) -> Chunk:
    """A chunk of (partition, value)s, with who sent each as its key."""
    buffer = Buffer(partitions, 1 << 20)
    for q, value in records:
        buffer.add(_key(value), value, 1000, partition=q)
    return buffer.encode("none")


def _key(value: bytes) -> bytes:
    return value[:1]


class CompactingMachine(Machine):
    """Two topics, some lives, and upkeep that removes what is superseded."""

    def __init__(self) -> None:
        self.keys = patch("tests.log.test_machine.chunk", keyed)
        self.keys.start()
        super().__init__()

    @rule(topic=TOPIC, what=st.sampled_from(WHAT), pace=PACE)
    def compact(self, topic: str, what: str, pace: str | int) -> None:
        """A compaction, or a whole upkeep."""
        log = view(self.store, topic)
        if self.free(what):
            steps = (
                compact(log, CompactionSettings(size=2500))
                if what == "compact"
                else tend(log, MERGES, UpkeepResult("t"), 10_000)
            )
            self.start(Life(what, Driven(self.store, steps)), pace)

    def fetched(self, at: Place, runs: list[Any]) -> None:
        """What a reader was given, and what it passed over."""
        self.look()
        for run in runs:
            for offset, value in zip(run.offsets.to_pylist(), run.data.column("value").to_pylist(), strict=True):
                self.passed(at, self.due[at], offset)
                assert self.known[at][offset] in (value, None), "a reader was given other records"
                self.due[at] = offset + 1

    def passed(self, at: Place, start: int, end: int) -> None:
        """Records that are left out have a newer one of their key, or are below the floor."""
        known, floor = self.known[at], self.head(at[0]).floor[at[1]]
        for offset in range(max(start, floor), end):
            key = _key(known[offset] or b"")
            newer = any(value is not None and _key(value) == key for value in known[offset + 1 :])
            assert known[offset] is None or newer, "a reader passed over the last record of a key"

    def read_all(self) -> None:
        for id in TOPICS:
            head = self.head(id)
            reader = Reader(view(self.store, id), dict.fromkeys(range(PARTITIONS), 0), from_floor=True)
            there: dict[int, dict[int, bytes]] = {q: {} for q in range(PARTITIONS)}
            while fetched := self.store.run(reader.poll()):
                for run in fetched:
                    values = run.data.column("value").to_pylist()
                    there[run.partition] |= dict(zip(run.offsets.to_pylist(), values, strict=True))
            assert reader.positions == {q: head.next[q] for q in range(PARTITIONS)}, "not all could be read"
            for q, found in there.items():
                for offset, value in sorted(found.items()):
                    self.compare((id, q), offset, [value])
                self.left((id, q), found)

    def compare(self, at: Place, offset: int, values: list[bytes]) -> None:
        known = self.known[at]
        known += [None] * (offset - len(known))
        super().compare(at, offset, values)

    def left(self, at: Place, found: dict[int, bytes]) -> None:
        """The last record of each key is there."""
        known, floor = self.known[at], self.head(at[0]).floor[at[1]]
        last = {_key(value): n for n, value in enumerate(known) if value is not None}
        for key, offset in last.items():
            assert offset < floor or offset in found, f"the last record of {key!r} is gone"

    def teardown(self) -> None:
        """Everything arrives, and all is still well."""
        try:
            super().teardown()
        finally:
            self.keys.stop()


TestCompactingMachine = CompactingMachine.TestCase
TestCompactingMachine.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=HURRIED
)


class Longer(CompactingMachine):
    """The same, for longer."""


@pytest.mark.soak
class TestLongCompactingMachine(Longer.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=100, deadline=None, suppress_health_check=HURRIED)
