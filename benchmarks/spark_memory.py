"""How much memory do Spark's Python workers take for a topic that is larger than they are?"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
from pyspark.sql import Observation
from pyspark.sql.functions import count

import tailrace
from benchmarks import sparkjobs
from benchmarks.harness import Figure, Figures, Question, Run, Side, Target, expect, timed
from benchmarks.load import Load

PEAK, RATE = Figure("largest Python worker MB", 1, more=False), Figure("rows/s")
READ, WRITE = "read", "write"


def question(quick: bool) -> Question:
    """A topic of 5 GB, read into nothing and written into another, with Spark's default memory."""
    copies = 2 if quick else 120
    load = Load(50_000 if quick else 200_000)
    return Question(
        name="spark_memory",
        title="memory of Spark's Python workers",
        note=f"A topic of {load.size * copies / 1e9:.1f} GB, {load.count * copies:,} records, on "
        f"{sparkjobs.CORES} cores with Spark's default memory; the highest resident memory of any Python worker, "
        "files that it maps included.",
        sides=[
            Side(READ, "into noop", partial(opened, load, copies, False)),
            Side(WRITE, "into another topic, one batch write", partial(opened, load, copies, True)),
        ],
        figures=[PEAK, RATE],
        base=READ,
        targets=[
            Target("a worker that reads stays under 500 MB", lambda r: r.of(READ, PEAK.name), 500, at_most=True),
            Target("a worker that writes stays under 500 MB", lambda r: r.of(WRITE, PEAK.name), 500, at_most=True),
        ],
        rounds=1,
    )


@contextlib.contextmanager
def opened(load: Load, copies: int, writes: bool, folder: Path) -> Iterator[Run]:
    """The topic, made of the same records again and again."""
    home = tailrace.open(folder / "home")
    topic, out = home.topic("orders", partitions=8), home.topic("out", partitions=8)
    with topic.producer() as producer:
        for _ in range(copies):
            for batch in load.batches:
                producer.send_batch(batch)
    rounds = 0

    def run() -> Figures:
        nonlocal rounds
        rounds += 1
        given = {"home": str(folder / "home"), "subscribe": "orders"}
        seen = Observation()
        frame = sparkjobs.session().read.format("tailrace").options(**given).load().observe(seen, count("*").alias("n"))
        with peak() as found:
            if writes:
                sink = frame.drop("topic").write.format("tailrace").mode("append").option("topic", "out")
                seconds, _ = timed(sink.option("home", str(folder / "home")).save)
            else:
                seconds, _ = timed(lambda: sparkjobs.exhaust(frame))
        expect("rows read", seen.get["n"], load.count * copies)
        expect("Python workers seen", bool(found), True)
        if writes:
            expect("rows", sum(end for _, end in out.ends().values()), load.count * copies * rounds)
        return {PEAK.name: max(found.values()) / 1e6, RATE.name: load.count * copies / seconds}

    yield run


@contextlib.contextmanager
def peak() -> Iterator[dict[int, int]]:
    """The most resident memory that each Python worker below this process has ever had, by process; the system keeps
    it, so none is missed between two looks."""
    found: dict[int, int] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if "daemon" in " ".join(child.cmdline()):
                        found[child.pid] = most(child.pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        time.sleep(0.1)
        done.set()
        thread.join()


def most(pid: int) -> int:
    """The highest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
