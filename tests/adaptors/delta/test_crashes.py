"""A run that dies anywhere, also by kill -9: every change is in its table once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.adaptors.delta.ledger import DeltaLedger
from tailrace.adaptors.delta.store import DeltaStore
from tailrace.adaptors.delta.table import DeltaLakeTable
from tests.adaptors.delta.place import Place
from tests.adaptors.lake.crashes import TABLES, Killed, Steps, expected, life

END = 24


def check(place: Place, end: int) -> None:
    """Each change is there once."""
    for table in TABLES:
        rows = place.rows(table)
        if place.changes:
            assert [row["n"] for row in rows] == list(range(end))
        else:
            assert sorted(rows, key=lambda row: row["id"]) == expected(end)


@pytest.mark.parametrize("keep", ["changes", "state"])
def test_death_at_every_step(keep: str, tmp_path: Path) -> None:
    """Each life dies at a later step: a table's commit, the ledger's, what is staged; the next has other batches."""
    at, dead = 3 if keep == "changes" else 4, True
    while dead:
        place = Place(tmp_path / str(at), keep=keep, compact_every=0)
        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(at)
            steps.watch(patch, DeltaLakeTable, "append", "merge")
            steps.watch(patch, DeltaLedger, "swap")
            steps.watch(patch, DeltaStore, "put", "remove")
            try:
                life(place.writer(), 1, 12, END)
                dead = False
            except Killed:
                pass
        life(place.writer(), 2, 7, END)
        check(place, END)
        at += 3 if keep == "changes" else 4
    assert at > 20


CHILD = """
import sys
from tests.adaptors.delta.place import Place
from tests.adaptors.lake.crashes import life
from tailrace.storage.local.files import REAL

REAL.sync = lambda descriptor: None
path, keep, epoch, size, end = sys.argv[1:]
writer = Place(path, keep=keep, compact_every=5).writer()
life(writer, int(epoch), int(size), int(end), lambda at: print(at, flush=True))
"""


def killed(rounds: int, path: Path, keep: str) -> int:
    """Runs that are killed after a few batches; up to where the last of them came."""
    rng, reached = random.Random(5), 0
    for epoch in range(1, rounds + 1):
        command = [sys.executable, "-c", CHILD, str(path), keep, str(epoch), str(rng.randrange(3, 9)), "1000000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(rng.randrange(1, 4)):
                reached = int(child.stdout.readline())
            # Somewhere in the next batch: wherever that is must do.
            try:
                child.wait(rng.uniform(0, 0.15))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
    return reached


@pytest.mark.processes
@pytest.mark.parametrize("keep", ["changes", "state"])
@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_kill_9(rounds: int, keep: str, tmp_path: Path) -> None:
    end = killed(rounds, tmp_path, keep) + 100
    place = Place(tmp_path, keep=keep)
    life(place.writer(), rounds + 1, 50, end)
    check(place, end)
