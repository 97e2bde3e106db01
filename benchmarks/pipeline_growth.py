"""Does copying a table cost more a row, or more memory, the longer the table is?"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.copiers.growing import DRIVER, JAVA, WORKER
from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect
from benchmarks.pipeline_copy import INTO, Job, count, execute, run_sql, server

COST, RATE = Figure("µs a row", 2, more=False), Figure("rows/s")
MEMORY = {
    name: Figure(f"{text} MB", more=False)
    for name, text in ((DRIVER, "driver's Python"), (JAVA, "driver's Java"), (WORKER, "largest Python worker"))
}


def question(quick: bool) -> Question:
    """Tables of a hundred thousand to ten million rows, into a table and into Parquet."""
    sizes = [10_000, 100_000] if quick else [100_000, 1_000_000, 10_000_000]
    return Question(
        name="pipeline_growth",
        title="a pipeline's copy of tables of different lengths",
        note="Rows of 200 bytes, through the durable log; each copy in a process of its own. Time: without starting "
        "Spark, and without what a run over an empty table takes. Memory: the highest resident.",
        sides=[
            Side(named(into, size), "tailrace, run once", partial(opened, into, size))
            for into in INTO
            for size in sizes
        ],
        figures=[COST, RATE, *MEMORY.values()],
        base=named(INTO[0], sizes[0]),
        targets=[target for into in INTO for target in targets(into, sizes)],
        rounds=1,
    )


def named(into: str, size: int) -> str:
    """A side."""
    return f"{size:,} rows into {into}"


def targets(into: str, sizes: list[int]) -> Iterator[Target]:
    """The longest costs at most a fifth more than the shortest a row, and no more memory than the one before it."""
    first, before, last = (named(into, sizes[n]) for n in (0, -2, -1))

    def times(figure: Figure, base: str) -> Callable[[Results], float]:
        return lambda results: results.of(last, figure.name) / results.of(base, figure.name)

    yield Target(f"{last}: {COST.name} at most 1.2 times that of {first}", times(COST, first), 1.2, at_most=True)
    for figure in MEMORY.values():
        text = f"{last}: {figure.name} at most 1.2 times that of {before}"
        yield Target(text, times(figure, before), 1.2, at_most=True)


@contextlib.contextmanager
def opened(into: str, rows: int, folder: Path) -> Iterator[Run]:
    """A run of the harness is a process."""

    def run() -> Figures:
        scratch = folder / uuid.uuid4().hex
        scratch.mkdir(parents=True)
        with place(into, rows, scratch) as job:
            return copied(job)

    yield run


@contextlib.contextmanager
def place(into: str, rows: int, scratch: Path) -> Iterator[Job]:
    """A new database or folder to copy into, which is gone afterwards."""
    made, name = server(rows), f"sink_{uuid.uuid4().hex[:8]}"
    run_sql(made.uri(), f"CREATE DATABASE {name}")
    try:
        yield Job(made.uri("source_full"), str(scratch) if into == "parquet" else made.uri(name), scratch, rows)
    finally:
        run_sql(made.uri(), f"DROP DATABASE {name} WITH (FORCE)")
        run_sql(made.uri(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        shutil.rmtree(scratch, ignore_errors=True)


def copied(job: Job) -> Figures:
    """One process, and what it says of itself."""
    empty = job.source.replace("source_full", "source_empty")
    done = execute([sys.executable, "-m", "benchmarks.copiers.growing", empty, job.source, job.into, str(job.scratch)])
    if done.returncode:
        raise RuntimeError(f"ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    expect("rows copied", count(job.into, "postgresql" if job.to_table else "parquet"), job.rows)
    said = json.loads(done.stdout.splitlines()[-1])
    seconds = max(said["seconds"] - said["idle"], 1e-9)
    memory = {figure.name: said[name] / 1e6 for name, figure in MEMORY.items()}
    return {COST.name: seconds / job.rows * 1e6, RATE.name: job.rows / seconds, **memory}
