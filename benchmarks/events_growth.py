"""Does a stream of events get slower as it grows, and how much memory does reading it take?"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import statistics
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.memory import watch
from tailrace.events import Event

DATA = b'{"sku":"tea","count":1,"note":"' + b"x" * 160 + b'"}'
STREAM, BATCH = "Cart-1", 100
APPEND = Figure("append one, p50 ms", 3, more=False)
MEMORY = Figure("read all, peak MB", 1, more=False)


def question(quick: bool) -> Question:
    """The same appends to streams of a thousand to a million events, and the memory of reading one."""
    sizes = [1_000, 20_000] if quick else [1_000, 100_000, 1_000_000]
    names = [f"{size:,} events" for size in sizes]
    return Question(
        name="events_growth",
        title="appends to event streams of different lengths, and the memory of reading them",
        note=f"Events of 200 bytes, filled in by appends of {BATCH}. The memory is the peak over the beginning of a "
        "process that reads the whole stream, event by event.",
        sides=[Side(name, "tailrace", partial(grown, size=size)) for name, size in zip(names, sizes, strict=True)],
        figures=[APPEND, MEMORY],
        base=names[0],
        targets=[
            Target(
                f"append: at {names[-1]} at most 1.2 times that at {names[0]}",
                lambda results: _ratio(results, names),
                1.2,
                at_most=True,
            ),
            Target(
                f"reading {names[-1]}: at most 100 MB over the beginning",
                lambda results: results.of(names[-1], MEMORY.name),
                100,
                at_most=True,
            ),
        ],
        rounds=3 if quick else 7,
    )


def _ratio(results: Results, names: list[str]) -> float:
    return results.of(names[-1], APPEND.name) / results.of(names[0], APPEND.name)


@contextlib.contextmanager
def grown(folder: Path, size: int) -> Iterator[Run]:
    """A stream of that many events."""
    with tailrace.open(folder / "home") as home:
        stream = home.events().stream(STREAM)
        for _ in range(size // BATCH):
            stream.append([Event("Added", DATA) for _ in range(BATCH)])

        def run() -> Figures:
            each = [timed(lambda: stream.append([Event("Added", DATA)]))[0] for _ in range(200)]
            return {APPEND.name: statistics.median(each) * 1e3, MEMORY.name: peak(folder, size)}

        yield run


def peak(folder: Path, size: int) -> float:
    """How far a process that reads the stream goes over its beginning."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=read_all, args=(str(folder / "home"), size, there), daemon=True)
    child.start()
    there.close()
    try:
        return watch(child.pid or 0, here)[0]
    finally:
        here.close()
        child.join()


def read_all(home: str, size: int, pipe: Connection) -> None:
    """The process that is watched."""
    try:
        with tailrace.open(home) as opened:
            stream = opened.events().stream(STREAM)
            stream.tip()
            gc.collect()
            pipe.send("")
            pipe.recv()
            read = sum(1 for _ in stream.read())
            expect("at least as many events as were filled in", read >= size, True)
            pipe.send("")
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
