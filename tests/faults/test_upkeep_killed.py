"""kill -9 in the middle of whole upkeeps, again and again: what is to be there is there, and scrub finds no damage."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace
from tailrace.log.format import head as heads
from tailrace.log.topic import Topic

WORKER = """
import sys, time
import tailrace
from tailrace.log.format import head as heads
from tailrace.log.upkeep.topic_upkeep import UpkeepResult, tend

heads.MAX_ENTRY_BYTES = 600
home = tailrace.open(sys.argv[1])
topics = [home.topic(name) for name in ("kept", "compacted")]
print("ready", flush=True)
while True:
    for topic in topics:
        home.store.run(tend(topic.log, topic.settings, UpkeepResult(topic.name), int(time.time() * 1000)))
"""


def killed(folder: Path, seconds: float) -> None:
    """Upkeep of a home, for so long."""
    with subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return
    pytest.fail("upkeep ended by itself")


def append(topics: list[Topic], first: int) -> None:
    for n in range(first, first + 60):
        for topic in topics:
            topic.append([(b"%d" % (n % 7), b"%d " % n + b"x" * (300_000 if n % 20 == 0 else 900))])


def values(topic: Topic) -> dict[int, list[tuple[bytes | None, int]]]:
    return {q: [(r.key, int((r.value or b"").split()[0])) for r in topic.records(q)] for q in range(topic.partitions)}


def test_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 600)
    rng = random.Random(7)
    with tailrace.open(tmp_path) as home:
        kept = home.create_topic("kept", 2, merge_bytes=1 << 20)
        compacted = home.create_topic("compacted", 2, merge_bytes=1 << 20, compact=True)
        for n in range(8):
            append([kept, compacted], 60 * n)
            killed(tmp_path, rng.uniform(0.02, 0.5))
            for q, found in values(kept).items():
                right = [i for i in range(60 * (n + 1)) if (b"%d" % (i % 7), i) in found]
                assert [i for _, i in found] == right, f"in order, of partition {q}"
            assert sum(len(found) for found in values(kept).values()) == 60 * (n + 1)
            last = {key: i for found in values(compacted).values() for key, i in found}
            assert last == {b"%d" % (i % 7): i for i in range(60 * (n + 1))}
        home.upkeep()
        assert home.scrub().clean
        assert sum(len(found) for found in values(compacted).values()) < 8 * 60, "something was compacted"
