"""How fast does upkeep go, and does it get in the way of who appends?"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import tailrace
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.load import Load
from tailrace.log.topic import Topic
from tailrace.log.upkeep.compaction.compaction import compact
from tailrace.log.upkeep.compaction.round import CompactionSettings
from tailrace.log.upkeep.merge import merge_all
from tailrace.log.upkeep.retention import stored_bytes

RATE = Figure("MB/s")
MOST, HALF = Figure("p99 ms", 3, more=False), Figure("p50 ms", 3, more=False)
COMMIT = 5_000
"""Records of a commit: about a megabyte."""
OBJECT = 64 * 1024 * 1024


def question(quick: bool) -> Question:
    """Merging and compacting, against reading the same bytes and writing them to files of the same size."""
    load = Load(100_000 if quick else 1_200_000)
    again = Load(load.count, entities=load.count // 2)
    return Question(
        name="upkeep",
        title="MB/s of upkeep, by the bytes that it goes through",
        note=f"A topic of 8 partitions and {load.count:,} records of 216 bytes, {COMMIT:,} in a commit. "
        "Merging makes objects of 64 MiB of them. Compacting keeps the last record of each key; half as many keys as "
        "records. Copying reads the topic's objects and writes them to files of 64 MiB, each made durable with fsync.",
        sides=[
            Side("merge", "every object durable", partial(worked, load=load, work=_merge)),
            Side("compact", "every object durable", partial(worked, load=again, work=_compact)),
            Side("plain copy", "fsync of each file", partial(worked, load=load, work=_copy)),
        ],
        figures=[RATE],
        base="plain copy",
        targets=[
            Target(f"{name}: at least half of plain copying", partial(_against_copy, name), 0.5)
            for name in ("merge", "compact")
        ],
        rounds=2 if quick else 5,
    )


def _against_copy(name: str, results: Results) -> float:
    return results.of(name, RATE.name) / results.of("plain copy", RATE.name)


@contextlib.contextmanager
def worked(folder: Path, load: Load, work: Callable[[Topic, Path], int]) -> Iterator[Run]:
    """One round: a topic is filled anew, and gone through."""
    assert load.keys, load.values
    numbers = iter(range(1_000_000))

    def run() -> Figures:
        with tailrace.open(folder / "home") as home:
            topic = filled(home, f"t{next(numbers)}", load)
            os.sync()
            seconds, size = timed(lambda: work(topic, folder))
            home.delete_topic(topic.name)
        shutil.rmtree(folder / "copy", ignore_errors=True)
        return {RATE.name: size / seconds / 1e6}

    yield run


def filled(home: tailrace.Home, name: str, load: Load) -> Topic:
    """A topic of many commits."""
    topic = home.topic(name, partitions=8)
    with topic.producer() as out:
        for start in range(0, load.count, COMMIT):
            out.send_batch(load.batch(start, start + COMMIT))
            out.flush()
    expect("in the topic", sum(end for _, end in topic.ends().values()), load.count)
    return topic


def _merge(topic: Topic, folder: Path) -> int:
    written: list[int] = []
    topic.store.run(merge_all(topic.log, size=OBJECT, told=written.append))
    expect("anything was merged", sum(written) > 0, True)
    return sum(written)


def _compact(topic: Topic, folder: Path) -> int:
    size = topic.store.run(stored_bytes(topic.log))
    expect("anything was compacted", topic.store.run(compact(topic.log, CompactionSettings())).records > 0, True)
    return size


def _copy(topic: Topic, folder: Path) -> int:
    source, target = folder / "home" / "objects" / "topics" / topic.id, folder / "copy"
    target.mkdir()
    total, number = 0, 0
    out = (target / "0").open("wb")
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        if out.tell() >= OBJECT:
            _durable(out)
            number += 1
            out = (target / str(number)).open("wb")
        total += out.write(path.read_bytes())
    _durable(out)
    return total


def _durable(out: object) -> None:
    file: contextlib.AbstractContextManager[object] = out  # type: ignore[assignment]
    with file:
        out.flush()  # type: ignore[attr-defined]
        os.fsync(out.fileno())  # type: ignore[attr-defined]


# --- beside appends
def latency(quick: bool) -> Question:
    """Single appends, while another process merges or compacts, and while none does."""
    load, topics = Load(600_000), 2 if quick else 8
    again = Load(load.count, entities=load.count // 2)
    return Question(
        name="upkeep_latency",
        title="milliseconds for one durable append beside upkeep",
        note="Records of 216 bytes by one thread, each waited for before the next is sent, to one topic, while another "
        f"process merges or compacts {topics} other topics of {load.size / 1e6:,.0f} MB, as fast as it can.",
        sides=[
            Side("alone", "nothing else", partial(appended, load=load, work=None, topics=0)),
            Side("beside merging", "another process", partial(appended, load=load, work="merge", topics=topics)),
            Side("beside compaction", "another process", partial(appended, load=again, work="compact", topics=topics)),
        ],
        figures=[HALF, MOST],
        base="alone",
        targets=[
            Target(f"p99 {name}: at most twice that of none", partial(_against_none, name), 2, at_most=True)
            for name in ("beside merging", "beside compaction")
        ],
        rounds=3 if quick else 7,
    )


def _against_none(name: str, results: Results) -> float:
    return results.of(name, MOST.name) / results.of("alone", MOST.name)


@contextlib.contextmanager
def appended(folder: Path, load: Load, work: str | None, topics: int) -> Iterator[Run]:
    """One round: appends one by one, for two seconds or as long as the other process is at it."""
    assert load.keys, load.values
    numbers = iter(range(1_000_000))

    def run() -> Figures:
        with tailrace.open(folder / "home") as home:
            others = [filled(home, f"t{next(numbers)}", load).name for _ in range(topics)]
            os.sync()
            with home.topic("single", partitions=1).producer() as out:
                out.send(b"key", b"warm").result()
                with _beside(folder / "home", others, work) as going:
                    seconds = sorted(_each(out, going))
            for name in others:
                home.delete_topic(name)
        expect("enough appends beside it", len(seconds) > 50, True)
        return {HALF.name: seconds[len(seconds) // 2] * 1e3, MOST.name: seconds[len(seconds) * 99 // 100] * 1e3}

    yield run


def _each(out: tailrace.Producer, going: Callable[[], bool]) -> Iterator[float]:
    value = bytes(200)
    while going():
        began = time.perf_counter()
        out.send(b"a key of sixteen", value).result()
        yield time.perf_counter() - began


@contextlib.contextmanager
def _beside(home: Path, topics: Sequence[str], work: str | None) -> Iterator[Callable[[], bool]]:
    """Whether the other process is still at work; without one, whether two seconds have passed."""
    if work is None:
        end = time.monotonic() + 2
        yield lambda: time.monotonic() < end
        return
    command = [sys.executable, "-m", "benchmarks.upkeep", str(home), work, *topics]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        expect("the other process", process.stdout.readline(), "ready\n")
        process.stdin.write("go\n")
        process.stdin.flush()
        yield lambda: process.poll() is None
        expect("its end", process.wait(), 0)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """The other process."""
    path, work, *names = sys.argv[1:]
    os.nice(10)  # as `tailrace upkeep run` does
    with tailrace.open(path) as home:
        topics = [home.topic(name) for name in names]
        print("ready", flush=True)
        sys.stdin.readline()
        for topic in topics:
            {"merge": _merge, "compact": _compact}[work](topic, Path(path))


if __name__ == "__main__":
    main()
