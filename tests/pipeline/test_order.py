"""Order: whatever a sink writes of changes can be put into the source's own order, all of one transaction too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.message import Message, Place
from tailrace.pipeline.functions import batch, each, rename, skip
from tailrace.pipeline.run.runner import Runner
from tests.adaptors.postgres.conftest import FAST
from tests.adaptors.postgres.place import Place as Database
from tests.conftest import started
from tests.servers import postgres as servers

pytestmark = [pytest.mark.spark, pytest.mark.server]

ONE_TRANSACTION = """
    DO $$ DECLARE k int; BEGIN
        FOR k IN {0}..{1} LOOP
            IF k % 3 = 0 THEN INSERT INTO u VALUES (k, k);
            ELSE UPDATE t SET n = k WHERE id = k % 3; END IF;
        END LOOP;
    END $$"""
"""The changes number k = 0, 1, …, of two rows of one table and of another table, all at one time."""
ORDER = ("transaction", "position")


@pytest.fixture(scope="module")
def source() -> Iterator[Database]:
    with (
        started("PostgreSQL 18", lambda: servers.postgres(settings=FAST)) as server,
        Database(server, "postgres") as place,
    ):
        yield place


def forging(message: Message) -> Message:
    made = Message(message.op, message.namespace, message.id, message.data, keys=message.keys, mode=message.mode)
    made.place = Place(0, 0, 0, 0)
    return made


def turned(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The last row first."""
    return columns.take(pa.array(range(columns.num_rows - 1, -1, -1)))


def in_files(folder: Path, format: str) -> list[dict[str, Any]]:
    parts = [path for name in ("public.t", "public.u") for path in (folder / name).rglob("part-*")]
    tables = [ds.dataset(part, format=format).to_table() for part in parts]
    return pa.concat_tables(tables, promote_options="permissive").to_pylist()


def in_topics(home: Path) -> list[dict[str, Any]]:
    out = []
    with tailrace.open(home) as opened:
        for name in ("public-t", "public-u"):
            for record in opened.topic(name).records():
                place = {f"_{header}": int(value or b"") for header, value in record.headers}
                out.append({**json.loads(record.value or b""), **place})
    return out


def test_changes_of_one_transaction_can_be_ordered(spark: SparkSession, source: Database, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, -1), (2, -1)")
    source.run("CREATE TABLE u (id int PRIMARY KEY, n int)")
    made = (
        tailrace.pipeline("shop", home=tmp_path / "home", partitions=4)
        .source("postgres", uri=source.uri, slot="order_slot", namespace=r"^public\.")
        .branch()
        .save("file", path=str(tmp_path / "parquet"), name="parquet")
        .branch()
        .transform(rename(n="k"), skip("k", ">=", -1), each(forging), batch(turned), rename(k="n"))
        .save("file", path=str(tmp_path / "json"), format="jsonl", name="json")
        .branch()
        .transform(each(forging))
        .save("tailrace", home=str(tmp_path / "topics"), name="topics")
        .definition()
    )
    Runner(made, spark).run(once=True)
    source.run(ONE_TRANSACTION.format(0, 299))
    Runner(made, spark).run(once=True)
    source.run(ONE_TRANSACTION.format(300, 599))
    source.run(ONE_TRANSACTION.format(600, 601))
    Runner(made, spark).run(once=True)

    for rows in (
        in_files(tmp_path / "parquet", "parquet"),
        in_files(tmp_path / "json", "json"),
        in_topics(tmp_path / "topics"),
    ):
        changes = [row for row in rows if row.get("_transaction") is not None]
        assert len(rows) == 2 + len(changes)
        changes.sort(key=lambda row: [row[f"_{name}"] for name in ORDER])
        assert [row["n"] for row in changes] == list(range(602))
        assert len({row["_transaction"] for row in changes}) == 3
        for id in (1, 2):
            mine = [row for row in rows if row["id"] == id]
            mine.sort(key=lambda row: (row["_partition"], row["_offset"]))
            assert [row["n"] for row in mine] == [-1, *(k for k in range(602) if k % 3 == id)]
