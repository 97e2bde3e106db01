"""How many records a second go from one Kafka topic into another, with the durable log in between?"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.kafka import kafka

from benchmarks.copiers.kafka_loop import ends
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from benchmarks.load import PARTITIONS, Load
from benchmarks.logs.kafka import LARGEST, TOPIC, connect
from benchmarks.pipeline_copy import execute
from tailrace.spark.runtime import class_archive
from tailrace.spark.runtime.java import java_home

RATE, START, WHOLE = Figure("records/s"), Figure("start-up s", 1, more=False), Figure("records/s with start-up")
SYNCED = {"flush.messages": "1", "max.message.bytes": str(LARGEST)}
"""A topic that syncs what it acknowledges, as tailrace's log does."""
INTO, THROUGH = "tailrace, into the commit log", "tailrace, into another topic"
READ, COPY = "confluent-kafka, into a synced file", "confluent-kafka, into another topic"
PIPELINE = """import tailrace

pipeline = (
    tailrace.pipeline("{into}", home="{folder}/home", partitions=8)
    .source("kafka", brokers="{brokers}", namespace="^{source}$", format="bytes")
    .branch({where}).save("kafka", brokers="{brokers}", topic="{into}")
)
"""
_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """One copy out of a topic; `scratch` is for the program's own files."""

    brokers: str
    source: str
    into: str
    scratch: Path


def ours(job: Job, where: str = "") -> Sequence[str]:
    """A pipeline, run once."""
    text = PIPELINE.format(folder=job.scratch, brokers=job.brokers, source=job.source, into=job.into, where=where)
    (job.scratch / "copied.py").write_text(text)
    return [str(Path(sys.executable).parent / "tailrace"), "run", str(job.scratch / "copied.py"), "--once"]


def loop(job: Job, kind: str) -> Sequence[str]:
    """The plain loop."""
    program = [sys.executable, "-m", "benchmarks.copiers.kafka_loop", kind]
    return [*program, job.brokers, job.source, job.into, str(job.scratch)]


def question(quick: bool) -> Question:
    """Into the log, and through it into another topic, against loops over confluent-kafka."""
    load = Load(50_000 if quick else 1_000_000)
    sides = {
        INTO: (partial(ours, where='namespace=r"^none$"'), "tailrace run --once, with a writer that wants none of it"),
        READ: (partial(loop, kind="file"), "consume() of 1,000; fdatasync and the offsets each 10,000 records"),
        THROUGH: (ours, "tailrace run --once; exactly once to readers of committed records"),
        COPY: (
            partial(loop, kind="topic"),
            "consume(), produce(); a transaction each 10,000, with the offsets",
        ),
    }
    return Question(
        name="kafka_pipeline",
        title="records from one Kafka topic into another a second",
        note=f"{load.count:,} records of 216 bytes, unchanged, 8 partitions, one broker that syncs what it "
        "acknowledges; each program in a process of its own. Start-up is how long the same command takes for an empty "
        "topic, and is shown apart.",
        sides=[
            Side(name, mode, partial(opened, command, load, name in (THROUGH, COPY)), name in (READ, COPY))
            for name, (command, mode) in sides.items()
        ],
        figures=[RATE, START, WHOLE],
        base=THROUGH,
        targets=[at_least(INTO, READ), at_least(THROUGH, COPY)],
        rounds=1 if quick else 3,
    )


def at_least(ours: str, theirs: str) -> Target:
    """0.7 of what the loop makes."""

    def ratio(results: Results) -> float:
        return results.of(ours, RATE.name) / results.of(theirs, RATE.name)

    return Target(f"{ours}: ≥ 0.7 of {theirs}", ratio, 0.7)


@contextlib.contextmanager
def opened(command: Callable[[Job], Sequence[str]], load: Load, counted: bool, folder: Path) -> Iterator[Run]:
    """A broker of its own for each side, with a full and an empty topic."""
    class_archive.make(java_home())
    with kafka(folder / "kafka", settings={"message.max.bytes": LARGEST}) as server:
        make(server.url, TOPIC, "empty")
        with connect(server.url) as client:
            expect("records sent", client.append(load), load.count)

        def run() -> Figures:
            start = once(command, server.url, "empty", 0, counted, folder)
            whole = once(command, server.url, TOPIC, load.count, counted, folder)
            rate = load.count / max(whole - start, 1e-9)
            return {RATE.name: rate, START.name: start, WHOLE.name: load.count / whole}

        yield run


def make(brokers: str, *topics: str) -> None:
    """New topics."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 2})
    for made in admin.create_topics([NewTopic(one, PARTITIONS, 1, config=SYNCED) for one in topics]).values():
        made.result()


def once(
    command: Callable[[Job], Sequence[str]], brokers: str, source: str, records: int, counted: bool, folder: Path
) -> float:
    """The seconds of one copy into a new topic, whose records are counted after it."""
    into, scratch = f"into-{next(_numbers)}", folder / uuid.uuid4().hex
    scratch.mkdir(parents=True)
    make(brokers, into)
    try:
        words = command(Job(brokers, source, into, scratch))
        seconds, done = timed(lambda: execute(words))
        if done.returncode:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
        if counted:  # each transaction has left a marker in every partition that it wrote to
            markers = sum(ends(brokers, into).values()) - records
            expect("records missing", markers < 0, False)
        return seconds
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
