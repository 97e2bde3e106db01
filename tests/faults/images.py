"""Crash images: what the disk may hold if the power fails at some moment of a run.

    trace = record(workload, folder)
    for image in images(trace, seed):
        ...reopen image.folder; everything in image.acknowledged must be there, nothing but image.attempted may be

A workload is a function of a Recorder: it opens storage through it (`recorder.store()`, or the recorder's `files` and
`vfs`), calls `attempt` before and `acknowledge` after each write, from any thread, and closes what it opened.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Generator, Hashable
from pathlib import Path
from typing import NamedTuple

from tests.faults.disk import Disk
from tests.faults.recorder import Op, Recorder

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where images are built: nobody needs them to be durable."""

Workload = Callable[[Recorder], None]


class Image(NamedTuple):
    """One state of the disk after a power cut; its folder is there until the next image is asked for."""

    folder: Path
    acknowledged: frozenset[Hashable]
    attempted: frozenset[Hashable]
    cut: int


def record(workload: Workload, folder: Path) -> list[Op]:
    """Run a workload in a new folder; gives everything it did to the disk."""
    folder.mkdir(parents=True)
    recorder = Recorder(folder.absolute())
    try:
        workload(recorder)
    finally:
        recorder.stop()
    return recorder.ops


def images(trace: list[Op], seed: int, *, cuts: int = 60, each: int = 3) -> Generator[Image, None, None]:
    """Some of the states that a power cut may leave, at some of the moments of a run: `cuts` times `each`."""
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(len(trace) + 1), min(cuts, len(trace) + 1)))
    disk, done = Disk(), 0
    notes: dict[str, set[Hashable]] = {"acknowledge": set(), "attempt": set()}
    for moment in moments:
        for op in trace[done:moment]:
            disk.do(op)
            if op.what in notes:
                notes[op.what].add(op.details)
        done = moment
        for _ in range(each):
            with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
                disk.after_cut(Path(folder), rng)
                yield Image(Path(folder), frozenset(notes["acknowledge"]), frozenset(notes["attempt"]), moment)
