"""Very many small tables: few jobs, few writes, a status that can be looked at meanwhile, and an end that is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.contract import Piece
from tailrace.pipeline.ingest.commit_log import CommitLog, packed
from tailrace.pipeline.ingest.copying import copy_unit
from tailrace.pipeline.operate import ledger
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime.engine import SparkEngine
from tailrace.pipeline.runtime.status import Status

TABLES = 450


def test_small_pieces_are_packed_and_large_ones_stand_alone() -> None:
    planned = {
        "large": [Piece("large", n, 100) for n in range(2)],
        **{f"t{n}": [Piece(f"t{n}", n, 1)] for n in range(150)},
        "none": [],
        "unknown": [Piece("unknown")],
    }
    units, ranges = packed(planned, 100)
    assert [len(unit) for unit in units] == [1, 1, 100, 50, 1]
    assert ranges["large"] == (0, 1)
    assert ranges["t149"] == (3, 3)
    assert ranges["none"] == (0, -1)
    assert ranges["unknown"] == (4, 4)
    assert [piece for unit in units for piece in unit] == [piece for pieces in planned.values() for piece in pieces]


def test_a_status_can_be_looked_at_while_tables_come() -> None:
    status, failed, done = Status("shop"), list[BaseException](), threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                status.shown()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(2000):
        status.source(f"t{n}").copied += 1
    done.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_status_of_very_many_tables_can_be_stored(tmp_path: Path) -> None:
    status = Status("shop")
    for n in range(20_000):
        status.source(f"public.a_table_with_a_rather_long_name_{n}").phase = "copy" if n >= 19_990 else "sync"
    with tailrace.open(tmp_path) as home:
        ledger.report(home, "shop", status.shown())
        found = ledger.reported(home, "shop")
    assert len(found["sources"]) == 1000
    assert found["left_out"] == 19_000
    assert sum(source["phase"] == "copy" for source in found["sources"].values()) == 10, "those first"


@pytest.mark.spark
def test_very_many_small_tables_take_few_jobs(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for n in range(TABLES):
        (tmp_path / "in" / f"t{n:04d}.jsonl").write_text("".join(f'{{"id": {10 * n + i}}}\n' for i in range(10)))
    jobs: list[int] = []

    def counted(self: SparkEngine, function: Callable[..., Any], work: Sequence[tuple[Any, ...]]) -> list[Any]:
        if function is copy_unit:
            jobs.append(sum(len(some[4]) for some in work))
        return tasks(self, function, work)

    tasks = SparkEngine.tasks
    monkeypatch.setattr(SparkEngine, "tasks", counted)
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home")
        .source("file", path=str(tmp_path / "in"), keys=["id"])
        .save("file", path=str(tmp_path / "out"), format="jsonl", plain=True)
        .definition()
    )
    runner = Runner(made, spark)
    runner.run(once=True)
    assert sum(jobs) == TABLES
    assert len(jobs) <= 6
    lines = [line for path in tmp_path.glob("out/**/*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(10 * TABLES))
    assert {(s.pieces, s.done, s.copied) for s in runner.status.sources.values()} == {(1, 1, 10)}
    with tailrace.open(tmp_path / "home") as home:
        phases = CommitLog(home, "shop").phases
    assert {phase["phase"] for phase in phases.values()} == {"complete"}, "files that were read to their ends"
