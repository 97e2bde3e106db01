"""One Spark session for all tests of this folder, and homes for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
import tailrace.spark
from tailrace.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as made:
        yield made


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, where a task may fail three times.  Other tests may have left one where none may."""
    if (other := SparkSession.getActiveSession()) is not None:
        other.stop()
    config = {"spark.sql.shuffle.partitions": "2", "spark.sql.execution.arrow.maxRecordsPerBatch": "5000"}
    made = tailrace.spark.session("local[2,3]", config=config)
    yield made
    made.stop()
