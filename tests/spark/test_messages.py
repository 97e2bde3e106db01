"""A pipeline's commit log in a Spark job of one's own: documents with their fields, not bytes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadSetting
from tailrace.log.record import Mode, Op
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.spark import messages

pytestmark = pytest.mark.spark


def fill(folder: Path) -> None:
    orders = pa.record_batch(
        {
            "id": pa.array([7, 8], pa.int64()),
            "total": pa.array([Decimal("1.50"), Decimal("20.00")], pa.decimal128(10, 2)),
            "details": pa.array(['{"a": {"b": [1, 2]}}', "null"], pa.json_()),
            "tags": pa.array([["x", "y"], None], pa.list_(pa.string())),
        }
    )
    with tailrace.open(folder) as home:
        log = CommitLog(home, "shop", partitions=1)
        log.begin(0)
        log.take_in([make_rows("public.orders", orders, ["id"], mode=Mode.COPY, timestamp=1000)], 1)
        changed = orders.slice(1)
        log.take_in([make_rows("public.orders", changed, ["id"], op=Op.UPDATE, mode=Mode.SYNC, timestamp=2000)], 2)
        other = pa.record_batch({"id": pa.array(["a\x1fb"])})
        log.take_in([make_rows("public.other", other, ["id"], mode=Mode.SYNC, timestamp=3000)], 3)


def test_documents_with_their_fields(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    log = spark.read.format("tailrace").option("home", str(tmp_path)).option("subscribe", "shop-log").load()
    everything = messages(log).orderBy("partition", "offset").collect()
    assert [(m.namespace, m.id, m.op, m.mode, m.offset) for m in everything[:3]] == [
        ("public.orders", "7", "insert", "copy", 0),
        ("public.orders", "8", "insert", "copy", 1),
        ("public.orders", "8", "update", "sync", 2),
    ]
    assert (everything[3].namespace, everything[3].op) == ("public.other", "insert")
    columns = "id bigint, total decimal(10,2), details struct<a: struct<b: array<int>>>, tags array<string>"
    first, *_ = messages(log, "public.orders", columns).orderBy("partition", "offset").collect()
    assert (first.data.id, first.data.total, first.data.tags) == (7, Decimal("1.50"), ["x", "y"])
    assert first.data.details.a.b == [1, 2], "jsonb as what it is, not as a text with escapes"
    total = messages(log, "public.orders", "total decimal(10,2)").agg({"data.total": "sum"}).collect()[0][0]
    assert total == Decimal("41.50")
    variant = messages(log, "public.orders", "details variant").selectExpr(
        "variant_get(data.details, '$.a.b[1]', 'int')"
    )
    assert variant.collect()[0][0] == 2


def test_what_are_no_records_of_a_topic(spark: SparkSession) -> None:
    with pytest.raises(BadSetting, match="have no key, value"):
        messages(spark.range(1))
