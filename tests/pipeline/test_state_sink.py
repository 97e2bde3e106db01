"""A source's tables as plain Parquet files with their current rows, read by others without any help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from tailrace.pipeline.define.definition import SinkDefinition
from tailrace.pipeline.run.runner import Runner
from tests.pipeline.shop import definition


def test_current_rows_are_there_when_a_run_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    lake = SinkDefinition("lake", "file", {"path": str(tmp_path / "lake"), "keep": "state", "every": 1000})
    for changes in (3, 7):
        made = definition(tmp_path, lake, tables=("shop.orders",), rows=500, changes=changes)
        Runner(replace(made, piece_rows=500), spark).run(once=True)
        expected = {n: f"change {n}" if 1 <= n <= changes else "copied" for n in range(500)}
        folder = tmp_path / "lake" / "shop.orders"
        assert {r["id"]: r["v"] for r in ds.dataset(folder).to_table().to_pylist()} == expected
        assert {r.id: r.v for r in spark.read.parquet(str(folder)).collect()} == expected
        assert len(list(folder.glob("*.parquet"))) == 1
