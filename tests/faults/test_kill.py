"""kill -9, at any time, of everyone who uses a home: what was acknowledged is read, once, in order."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tailrace
from tests.faults.workers import PARTITIONS, WORKERS, read_notes

CROWD = ("small", "large", "numbered", "small", "reading", "consuming", "consuming", "tidying", "transacting")
"""Who is at work at the same time."""


class Crowd:
    """The processes of one home; each slot has one life after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.lives = 0
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.notes: dict[int, Path] = {}
        self.deaths = 0

    def start(self, slot: int) -> None:
        kind = CROWD[slot]
        self.lives += 1
        name = f"{kind}-{slot}-{self.lives}"
        known = {"reading": f"reading-{slot}", "consuming": f"consumed-{name}"}
        notes = self.folder / known.get(kind, f"acked-{name}")
        errors = (self.folder / f"errors-{name}").open("wb")
        command = [sys.executable, "-m", "tests.faults.workers", kind, str(self.folder / "home"), name, str(notes)]
        self.notes[slot] = notes
        self.running[slot] = subprocess.Popen(command, stderr=errors, cwd=Path(__file__).parents[2])
        errors.close()

    def kill(self, slot: int) -> None:
        process = self.running.pop(slot)
        alive = process.poll() is None
        process.kill()
        process.wait()
        assert alive, f"{CROWD[slot]} ended by itself: {self._error()}"
        self.deaths += 1

    def _error(self) -> str:
        return "\n".join(p.read_text()[-2000:] for p in self.folder.glob("errors-*"))

    def round(self) -> None:
        """Some of them die, and are started again."""
        for slot in self.rng.sample(range(len(CROWD)), self.rng.randint(2, len(CROWD))):
            time.sleep(self.rng.uniform(0, 0.2))
            self.kill(slot)
            self.start(slot)
        if self.rng.random() < 0.7:
            self.wait()
        time.sleep(self.rng.uniform(0, 0.5))

    def wait(self) -> None:
        """Until everyone has come to note something; on a busy machine not for ever."""
        end = time.monotonic() + 15
        silent = [slot for slot in self.running if CROWD[slot] != "tidying"]
        while silent and time.monotonic() < end:
            silent = [slot for slot in silent if not self.notes[slot].exists() or not self.notes[slot].stat().st_size]
            time.sleep(0.02)

    def live(self, rounds: int) -> None:
        try:
            for slot in range(len(CROWD)):
                self.start(slot)
            self.wait()
            for _ in range(rounds):
                self.round()
        finally:
            ended = [CROWD[slot] for slot, process in self.running.items() if process.poll() is not None]
            for process in self.running.values():
                process.kill()
                process.wait()
            self.deaths += len(self.running)
        assert not ended, f"{ended} ended by themselves: {self._error()}"


def check(folder: Path) -> dict[str, int]:
    """Compare what everyone was told with what is there; gives how much that was."""
    with tailrace.open(folder / "home") as home:
        found = {(r.partition, r.offset): _short(r.value) for r in home.topic("t").records()}
        other = [_short(r.value) for r in home.topic("other").records()]
    values = list(found.values())
    transacted = [value for value in values if value.startswith("transacting")]
    assert sorted(transacted) == sorted(other * PARTITIONS), "half a transaction"
    alone = [value for value in values if not value.startswith("transacting")]
    assert len(alone) == len(set(alone)), "a record twice"
    _ordered(found)
    acked = [note for path in folder.glob("acked-*") for note in read_notes(path)]
    for q, offset, value in acked:
        if offset < 0:
            assert value in values, "a numbered batch that is said to be there"
        else:
            assert found.get((q, offset)) == value, f"{value} was acknowledged at {q}/{offset}"
    numbered = sorted(int(value.split(".")[1]) for value in values if value.startswith("numbered"))
    assert numbered == list(range(1, len(numbered) + 1)), "numbered batches without a gap"
    read = 0
    for path in folder.glob("reading-*"):
        read += _read_on(found, read_notes(path))
    consumed = _consumed(found, [note for path in folder.glob("consumed-*") for note in read_notes(path)])
    return {"acked": len(acked), "read": read, "there": len(values), "numbered": len(numbered), "consumed": consumed}


def _consumed(found: dict[tuple[int, int], str], notes: list[tuple[int, int, str]]) -> int:
    """All members together have handled each record up to some place; some twice, none never."""
    for q in range(PARTITIONS):
        handled = {offset for p, offset, _ in notes if p == q}
        assert handled == set(range(max(handled, default=-1) + 1)), f"a gap in what was handled of partition {q}"
    for q, offset, value in notes:
        assert found[q, offset] == value, f"a member was given {value} at {q}/{offset}"
    return len(notes)


def _short(value: bytes | None) -> str:
    return ((value or b"").rpartition(b".")[0] + b".").decode()


def _ordered(found: dict[tuple[int, int], str]) -> None:
    last: dict[tuple[int, str], int] = {}
    for (q, _), value in sorted(found.items()):
        who, n, _ = value.split(".")
        assert last.get((q, who), -1) < int(n), f"{value} after {last[q, who]} in partition {q}"
        last[q, who] = int(n)


def _read_on(found: dict[tuple[int, int], str], notes: list[tuple[int, int, str]]) -> int:
    """A reader saw the log as it is, from the start, without a gap; it was killed after some lines or others."""
    due = dict.fromkeys(range(PARTITIONS), 0)
    for q, offset, value in notes:
        assert offset == due[q], f"the reader went from {due[q]} to {offset} in partition {q}"
        assert found[q, offset] == value, f"the reader saw {value} at {q}/{offset}"
        due[q] = offset + 1
    return len(notes)


@pytest.mark.timeout(200)
def test_five_rounds_of_kill_9(tmp_path: Path) -> None:
    assert set(CROWD) == set(WORKERS)
    crowd = Crowd(tmp_path, seed=5)
    crowd.live(5)
    counted = check(tmp_path)
    assert crowd.deaths > len(CROWD) + 10
    assert min(counted.values()) > 20, counted
    assert len(list(tmp_path.glob("acked-*"))) > 10, "lives that came to acknowledge something"


@pytest.mark.soak
def test_fifty_rounds_of_kill_9(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, seed=int(time.time()))
    crowd.live(50)
    print(check(tmp_path))
