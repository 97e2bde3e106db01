"""A table's changes as a Spark source: in batches, and in streaming queries whose offsets are tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tailrace.errors import BadSetting, NotReady, UnknownTable
from tailrace.home import Home
from tailrace.streams import hash_key, model
from tests.spark.direct import batch, source, travelled


@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    email: str


@model()
class Quiet:
    id: str = hash_key()


def save(home: Home, first: int, count: int) -> None:
    engine = home.engine()
    engine.bind(User)
    for n in range(first, first + count):
        engine.save(User(f"u{n}", f"{n}@example.com"))


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [json.loads(row["key"])["id"] for row in rows]


def test_a_batch_read_has_what_is_there(home: Home) -> None:
    save(home, 0, 5)
    rows = batch(home, stream="User")
    assert ids(rows) == [f"u{n}" for n in range(5)]
    assert (rows[0]["table"], rows[0]["type"], rows[0]["old"]) == ("User", "insert", None)
    assert json.loads(rows[0]["new"]) == {"id": "u0", "email": "0@example.com"}
    token = home.engine().stream("User", "latest").token
    save(home, 5, 2)
    assert ids(batch(home, stream="User", startingPosition=json.dumps(token))) == ["u5", "u6"]
    assert batch(home, stream="User", startingPosition="latest") == []


def test_options_that_cannot_be(home: Home) -> None:
    save(home, 0, 1)
    home.engine().bind(Quiet)
    with pytest.raises(BadSetting, match="startingPosition is trim_horizon"):
        batch(home, stream="User", startingPosition="soon")
    with pytest.raises(BadSetting, match="did you mean 'startingPosition'"):
        batch(home, stream="User", startingPositions="latest")
    with pytest.raises(UnknownTable):
        batch(home, stream="Usr")
    with pytest.raises(NotReady, match="no change stream"):
        batch(home, stream="Quiet")


def rows_between(reader: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    tasks = travelled(reader).partitions(start, end)
    return [row for task in tasks for b in travelled(reader).read(travelled(task)) for row in b.to_pylist()]


def test_a_streams_batches_are_the_same_when_they_are_read_again(home: Home) -> None:
    save(home, 0, 3)
    found = source(home, stream="User", startingPosition="trim_horizon", maxRecordsPerTrigger=2)
    reader = travelled(found.streamReader(found.schema()))
    start = json.loads(json.dumps(reader.initialOffset()))
    first = reader.latestOffset(start, ReadAllAvailable())
    second = reader.latestOffset(first, ReadAllAvailable())
    assert reader.latestOffset(second, ReadAllAvailable()) == second, "no batch without a change"
    save(home, 3, 4)
    for _ in range(2):
        assert ids(rows_between(reader, start, first)) == ["u0", "u1"]
        assert ids(rows_between(reader, first, second)) == ["u2"]
    assert rows_between(reader, second, second) == []


def test_in_spark(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    save(home, 0, 4)
    given = {"home": home.url, "stream": "User"}
    assert spark.read.format("tailrace").options(**given).load().count() == 4
    for total in (4, 7):
        query = (
            spark.readStream.format("tailrace")
            .options(**given, startingPosition="trim_horizon", maxRecordsPerTrigger="3")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(json.loads(row["key"])["id"] for row in rows) == [f"u{n}" for n in range(total)]
        save(home, 4, 3)
