"""Commands for whole namespaces: rows on either side stay there, and hundreds of them take a few jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode, Op
from tailrace.pipeline.define.definition import SinkDefinition
from tailrace.pipeline.deliver import backlog, batch
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime import engine
from tests.pipeline import interrupted_runs
from tests.pipeline.interrupted_runs import explore
from tests.pipeline.shop import definition, sink
from tests.pipeline.toys import rows

TABLES, COMMANDS, BETWEEN = 60, 300, 4


def _told(path: Path) -> dict[str, list[set[int]]]:
    """Fill a commit log: a command for one table after the other, and between two of them rows of others.

    Gives the ids of each table between its commands."""
    told: dict[str, list[set[int]]] = {f"shop.t{n}": [set()] for n in range(TABLES)}
    with tailrace.open(path / "home") as home:
        log = CommitLog(home, "shop", partitions=4)
        log.begin(0)
        for n in range(COMMANDS):
            some: list[pa.RecordBatch] = []
            for id in range(n * BETWEEN, (n + 1) * BETWEEN):
                name = f"shop.t{(n + 17 * id) % TABLES}"
                columns = pa.record_batch({"id": pa.array([id]), "v": pa.array(["x"])})
                some.append(make_rows(name, columns, ["id"], mode=Mode.SYNC, timestamp=1000))
                told[name][-1].add(id)
            name = f"shop.t{n % TABLES}"
            command = pa.record_batch({"command": pa.array(["truncate"])})
            some.append(make_rows(name, command, [], op=Op.COMMAND, mode=Mode.SYNC, timestamp=1000))
            told[name].append(set())
            log.take_in(some, n)
    return told


def _came(path: Path) -> dict[str, list[set[int]]]:
    """The same, as a toy sink was given it."""
    came: dict[str, list[set[int]]] = {f"shop.t{n}": [set()] for n in range(TABLES)}
    for name, id, op, _ in rows(path):
        if op == "truncate":
            came[name].append(set())
        else:
            assert int(id) not in came[name][-1], "once"
            came[name][-1].add(int(id))
    return came


@pytest.mark.spark
def test_hundreds_of_commands_on_many_tables_take_a_few_jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, jobs, in_tasks = _told(tmp_path), list[str](), engine.in_tasks

    def counted(spark: Any, function: Callable[..., Any], work: Sequence[tuple[Any, ...]], reach: Any) -> list[Any]:
        jobs.append(work[0][1].name)
        return in_tasks(spark, function, work, reach)

    monkeypatch.setattr(engine, "in_tasks", counted)
    files = SinkDefinition("lake", "file", {"path": str(tmp_path / "lake")})
    Runner(definition(tmp_path, sink(tmp_path, exact=True), files, partitions=4, tables=()), spark).run(once=True)
    assert _came(tmp_path / "c0") == told
    for name, parts in told.items():
        assert {row["id"] for row in current(tmp_path / "lake", name)} == parts[-1]
    assert max(jobs.count("c0"), jobs.count("lake")) <= 2 + COMMANDS // batch.MAX_COMMANDS_PER_TASK


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_run_may_end_anywhere_among_many_commands(tasks: int) -> None:
    """Batches of many steps; with two tasks, each has partitions of its own, and may come further than the other."""
    with (
        patch.object(interrupted_runs, "BATCH", 40),
        patch.object(interrupted_runs, "COMMANDS", 5),
        patch.object(interrupted_runs, "TASKS", tasks),
    ):
        assert explore(range(2), stride=17) > 15


@pytest.mark.parametrize("tasks", [1, 2])
def test_one_partition_may_come_further_than_another(tasks: int) -> None:
    """A batch has three records of a partition, so one often has a command more than the other."""
    with (
        patch.object(interrupted_runs, "BATCH", 3),
        patch.object(interrupted_runs, "COMMANDS", 5),
        patch.object(interrupted_runs, "TASKS", tasks),
        patch.object(backlog, "FIRST_RECORDS", 3),
    ):
        assert explore((1, 3), stride=61) > 6
