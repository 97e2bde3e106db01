"""Spark really does the work: the same file on a cluster, and a copy that the driver could never hold."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.runs import process, until
from tests.spark.cluster import Cluster, cluster

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(0)]

FILE = """
import tailrace

def doubled(message):
    message.data["n"] *= 2
    return message

pipeline = (
    tailrace.pipeline("shop", home="{folder}/home", partitions=2, piece_rows=500)
    .source("file", path="{folder}/in", keys=["id"])
    .transform(doubled).save("file", path="{folder}/out")
)
"""
SMALL = ("--conf", "spark.executor.memory=512m")
LARGE = """
import sys
import tailrace, tailrace.spark
from tailrace.pipeline.run.runner import run

made = (
    tailrace.pipeline("large", home=sys.argv[1] + "/home", piece_rows=20_000)
    .source("tests.pipeline.toys:source", tables=["t"], rows=262_144, width=4096)
    .save("file", path=sys.argv[1] + "/out")
)
spark = tailrace.spark.session("local[2]", config={"spark.driver.maxResultSize": "1m"})
assert spark.conf.get("spark.driver.maxResultSize") == "1m"
run(made.definition(), spark, once=True)
"""


@pytest.fixture
def standing() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def orders(folder: Path, first: int, count: int) -> None:
    lines = [json.dumps({"id": n, "n": n}) + "\n" for n in range(first, first + count)]
    with (folder / "in" / "orders.jsonl").open("a") as out:
        out.writelines(lines)


def written(folder: Path) -> dict[int, int]:
    parts = (folder / "out").glob("orders/batch-*/*.parquet")
    return {row["id"]: row["n"] for part in parts for row in pq.read_table(part).to_pylist()}


def test_the_same_file_on_a_cluster_that_loses_a_worker(standing: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "shop.py").write_text(FILE.format(folder=tmp_path))
    orders(tmp_path, 0, 1000)
    with process(tmp_path, "run", "shop.py", "--once") as run:
        assert run.wait(600) == 0, (tmp_path / "said").read_text()
    with process(tmp_path, "run", "shop.py", "--master", standing.master, *SMALL) as run:
        orders(tmp_path, 1000, 1000)
        until(lambda: run.poll() is not None or len(written(tmp_path)) == 2000, 600)
        standing.kill(next(iter(standing.workers)))
        orders(tmp_path, 2000, 1000)
        until(lambda: run.poll() is not None or len(written(tmp_path)) == 3000, 600)
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 0, (tmp_path / "said").read_text()
    assert written(tmp_path) == {n: 2 * n for n in range(3000)}


def test_a_gibibyte_past_a_driver_that_takes_a_mebibyte(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    rows = sum(pq.ParquetFile(part).metadata.num_rows for part in (tmp_path / "out").glob("t/batch-*/*.parquet"))
    size = sum(part.stat().st_size for part in (tmp_path / "out").glob("t/batch-*/*.parquet"))
    assert (rows, size > 1 << 30) == (262_144, True)
