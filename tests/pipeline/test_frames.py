"""Functions over Spark DataFrames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import tailrace
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Op
from tailrace.pipeline.functions import frame, omit
from tailrace.pipeline.functions.frames import has_frames
from tailrace.pipeline.run.runner import run

pytestmark = pytest.mark.spark


def data(batches: Any) -> list[dict[str, Any]]:
    return [m.data for b in batches for m in messages_of(b)]


def test_a_frame_gets_columns_and_gives_columns(spark: SparkSession) -> None:
    names = spark.createDataFrame([(1, "one"), (3, "three")], "id long, name string")
    rows = make_rows("t", pa.record_batch({"id": [3, 2, 1]}), ["id"], op=Op.UPDATE, timestamp=7)
    out = frame(lambda df: df.join(names, "id").orderBy("id"))(rows)
    assert data(out) == [{"id": 3, "name": "three"}, {"id": 1, "name": "one"}]
    assert {(m.op, m.timestamp) for b in out for m in messages_of(b)} == {(Op.UPDATE, 7)}


def test_unset_stays_unset_and_other_types_are_text(spark: SparkSession) -> None:
    columns = pa.record_batch(
        {"id": [1, 2], "a": pa.nulls(2, pa.string()), "j": pa.array(['{"x":1}', None], pa.json_())}
    )
    rows = make_rows("t", columns, ["id"], unset=pa.array([b"\x02", None], pa.binary()))
    out = frame(lambda df: df.withColumn("n", sf.col("id") + 1))(rows)
    assert data(out) == [{"id": 1, "j": '{"x":1}', "n": 2}, {"id": 2, "a": None, "j": None, "n": 3}]


def test_what_is_refused(spark: SparkSession) -> None:
    rows = make_rows("t", pa.record_batch({"id": [1]}), ["id"])
    with pytest.raises(BadInput, match="gave a int; it gives a DataFrame"):
        frame(lambda df: df.count())(rows)
    with pytest.raises(BadInput, match="take away 'id'"):
        frame(lambda df: df.drop("id"))(rows)
    with pytest.raises(BadSetting, match="frame takes a function"):
        frame(5)  # type: ignore[arg-type]
    assert has_frames((omit("a"), frame(lambda df: df)))
    assert not has_frames((omit("a"),))


def totals(frame: DataFrame) -> DataFrame:
    return frame.withColumn("total", sf.col("n") * 2)


def test_a_pipeline_with_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    with (tmp_path / "orders.jsonl").open("w") as file:
        file.writelines(json.dumps({"id": n, "n": n}) + "\n" for n in range(5000))
    made = (
        tailrace.pipeline("shop", home=str(tmp_path / "home"), partitions=2)
        .source("file", path=str(tmp_path / "orders.jsonl"), keys=["id"])
        .transform(frame(totals), omit("n")).save("file", path=str(tmp_path / "out"))
        .definition()
    )  # fmt: skip
    run(made, spark, once=True)
    rows = pq.read_table(tmp_path / "out" / "orders").select(["id", "total"]).sort_by("id").to_pylist()
    assert rows == [{"id": n, "total": 2 * n} for n in range(5000)]
