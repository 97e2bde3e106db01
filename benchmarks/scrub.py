"""Does a scrub read as fast as the disk gives?"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect
from benchmarks.load import Load

SPEED = Figure("MB/s")
SCRUB, PLAIN = "tailrace scrub", "plain reading"
BLOCK = 1 << 20


def question(quick: bool) -> Question:
    """The same files read by a scrub and by a program that does nothing but read them."""
    size = (256 if quick else 2048) << 20
    return Question(
        name="scrub",
        title="a topic read again and checked, beside plain reading of the same files",
        note=f"A topic of {size >> 20:,} MiB in chunks of 4 MiB. Before each round its files are dropped from the page "
        "cache, so that the disk is read. Plain reading is one thread with read() of 1 MiB at a time, file by file.",
        sides=[
            Side(PLAIN, "read()", partial(opened, size=size, work=plainly)),
            Side(SCRUB, "crc, counts, pages", partial(opened, size=size, work=scrubbing)),
        ],
        figures=[SPEED],
        base=PLAIN,
        targets=[Target("scrub: at least 50 % of plain reading", share, 0.5)],
        rounds=3 if quick else 5,
    )


def share(results: Results) -> float:
    """Of the disk's speed."""
    return results.of(SCRUB, SPEED.name) / results.of(PLAIN, SPEED.name)


@contextlib.contextmanager
def opened(folder: Path, size: int, work: Callable[[Path], int]) -> Iterator[Run]:
    """A filled home; one round reads all of it from the disk."""
    fill(folder / "home", size)

    def run() -> Figures:
        files = [path for path in (folder / "home").rglob("*") if path.is_file()]
        forget(files)
        began = time.perf_counter()
        read = work(folder / "home")
        seconds = time.perf_counter() - began
        if read < size:
            expect("bytes read", read, size)
        return {SPEED.name: read / seconds / 1e6}

    yield run


def fill(home: Path, size: int) -> None:
    """Records of incompressible bytes, as many as it takes."""
    load = Load(16_384, seed=3)
    with tailrace.open(home) as opened_home:
        topic = opened_home.topic("t", partitions=8)
        batch = load.batch(0, load.count)
        with topic.producer() as out:
            written = 0
            while written < size:
                out.send_batch(batch)
                out.flush()
                written += batch.nbytes
    os.sync()


def forget(files: list[Path]) -> None:
    """Drop files from the page cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def plainly(home: Path) -> int:
    """Read every object, and nothing else."""
    read, buffer = 0, bytearray(BLOCK)
    for path in sorted((home / "objects").rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    read += count
    return read


def scrubbing(home: Path) -> int:
    """Scrub the home, which must be whole."""
    with tailrace.open(home) as opened_home:
        report = opened_home.scrub()
        expect("damages", len(report.damages), 0)
        return report.found.bytes
