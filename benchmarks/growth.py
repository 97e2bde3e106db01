"""Does a topic get slower as it grows?"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.load import Load
from benchmarks.logs import ours

OPEN = Figure("open ms", 3, more=False)
SINGLE = Figure("append one, p50 ms", 3, more=False)
BATCH = Figure("append 100, ms", 3, more=False)
MIDDLE = Figure("read at the middle, ms", 3, more=False)
FIGURES = [OPEN, SINGLE, BATCH, MIDDLE]
CHUNK = 1000
PART = 1_000_000


def question(quick: bool) -> Question:
    """The same few things done to topics of ten thousand to ten million records."""
    sizes = [10_000, 100_000] if quick else [10_000, 100_000, 1_000_000, 10_000_000]
    names = [f"{size:,} records" for size in sizes]
    return Question(
        name="growth",
        title="the same work on topics of different lengths",
        note=f"Topics of 8 partitions, filled with a commit for every {CHUNK:,} records. "
        "Opening: the home, the topic, a producer, and the topic's ends. "
        "Reading at the middle: the first batch from half of a partition on.",
        sides=[Side(name, "tailrace", partial(grown, size=size)) for name, size in zip(names, sizes, strict=True)],
        figures=FIGURES,
        base=names[0],
        targets=[flat(figure, names) for figure in FIGURES],
        rounds=3 if quick else 21,
    )


def flat(figure: Figure, names: list[str]) -> Target:
    """No length may cost over a fifth more than the shortest."""

    def worst(results: Results) -> float:
        return max(results.of(name, figure.name) for name in names) / results.of(names[0], figure.name)

    return Target(f"{figure.name}: at most 1.2 times that of {names[0]}", worst, 1.2, at_most=True)


@contextlib.contextmanager
def grown(folder: Path, size: int) -> Iterator[Run]:
    """A topic of that many records; one round opens it, appends a little, and reads at its middle."""
    with ours.connect(str(folder)) as log:
        fill(log, size)
    few = list(Load(100, seed=9).pairs())

    def run() -> Figures:
        opened = statistics.median(open_once(folder) for _ in range(5))
        with ours.connect(str(folder)) as log:
            single = statistics.median(log.append_each(few[:50], 1))
            batch = statistics.median(append_batch(log, few) for _ in range(3))
            middle = statistics.median(read_middle(log) for _ in range(5))
        return {OPEN.name: opened * 1e3, SINGLE.name: single * 1e3, BATCH.name: batch * 1e3, MIDDLE.name: middle * 1e3}

    yield run


def fill(log: ours.Tailrace, size: int) -> None:
    """Many commits, as a topic that has lived for a while has."""
    done = 0
    while done < size:
        load = Load(min(PART, size - done), seed=done)
        for start in range(0, load.count, CHUNK):
            log.producer.send_batch(load.batch(start, start + CHUNK))
            log.producer.flush()
        done += load.count
    expect("in the topic", log.count(), size)


def open_once(folder: Path) -> float:
    """Seconds until the topic's ends are known."""
    with contextlib.ExitStack() as stack:
        seconds, count = timed(lambda: stack.enter_context(ours.connect(str(folder))).count())
        expect("records in the topic", count > 0, True)
    return seconds


def append_batch(log: ours.Tailrace, pairs: list[tuple[bytes, bytes]]) -> float:
    """Seconds until a hundred records are durable."""

    def work() -> None:
        for key, value in pairs:
            log.producer.send(key, value)
        log.producer.flush()

    return timed(work)[0]


def read_middle(log: ours.Tailrace) -> float:
    """Seconds until the first batch from half of partition 0 on is there."""
    floor, end = log.topic.ends()[0]
    seconds, batch = timed(lambda: next(iter(log.topic.read(0, (floor + end) // 2, max_bytes=1 << 16))))
    expect("records at the middle", batch.num_rows > 0, True)
    return seconds
