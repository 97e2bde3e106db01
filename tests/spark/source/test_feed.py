"""The feed as a Spark source: a task for each epoch; the offsets of streaming queries are checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tailrace.errors import BadInput, BadSetting, OutOfRange
from tailrace.events import Event
from tailrace.feed.checkpoint import checkpoint, place
from tailrace.feed.epoch import EpochLimits
from tailrace.feed.indexing import Indexing
from tailrace.home import Home
from tests.spark.direct import batch, parts, source, travelled
from tests.spark.source.test_change_stream import rows_between


def append(home: Home, count: int) -> None:
    for n in range(count):
        home.events().stream(f"S-{n % 3}").append([Event("x" if n % 2 else "y", b"%d" % n)])


def where(rows: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["stream"], []).append(row["index"])
    return found


def test_a_task_for_each_epoch(home: Home) -> None:
    home._indexing = Indexing(home.store, limits=EpochLimits(max_version=2))
    for _ in range(4):
        append(home, 6)
        home.events().catch_up()
    found = parts(home, feed="events")
    assert len(found) > 2
    assert where([row for part in found for row in part]) == {f"S-{n}": list(range(8)) for n in range(3)}
    row = found[0][0]
    assert (row["partition"], row["stream"], row["index"], row["type"], row["data"]) == (0, "S-0", 0, "y", b"0")
    assert row["time"] is not None
    middle = checkpoint(place(found[1][0]["checkpoint"]).epoch, 0)
    assert len(batch(home, feed="events", startingCheckpoint=middle)) == sum(map(len, found[1:]))


def test_filters_and_no_bodies(home: Home) -> None:
    append(home, 6)
    assert where(batch(home, feed="events", types="x", streams="S-0,S-1")) == {"S-0": [1], "S-1": [0]}
    assert batch(home, feed="events", category="T") == []
    assert {row["data"] for row in batch(home, feed="events", bodies="false")} == {None}


def test_options_that_cannot_be(home: Home) -> None:
    with pytest.raises(BadSetting, match="'events', not 'event'"):
        batch(home, feed="event")
    with pytest.raises(BadSetting, match="whole number"):
        batch(home, feed="events", startingCheckpoint="-1")
    with pytest.raises(BadInput, match="63 bits"):
        batch(home, feed="events", startingCheckpoint="9" * 30)


def test_offsets_of_a_stream_are_checkpoints(home: Home) -> None:
    append(home, 6)
    home.events().catch_up()
    found = source(home, feed="events")
    reader = travelled(found.streamReader(found.schema()))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (start, list(end)) == ({"0": 0}, ["0"])
    append(home, 3)
    home.events().catch_up()
    for _ in range(2):
        assert where(rows_between(reader, start, end)) == {f"S-{n}": [0, 1] for n in range(3)}
    after = reader.latestOffset(end, ReadAllAvailable())
    assert where(rows_between(reader, end, after)) == {f"S-{n}": [2] for n in range(3)}


def test_a_checkpoint_that_the_feed_does_not_reach_is_refused(home: Home) -> None:
    """The home was restored from a backup: its feed ends before the place where the query stands."""
    append(home, 6)
    home.events().catch_up()
    with pytest.raises(OutOfRange, match="beyond the tail"):
        batch(home, feed="events", startingCheckpoint="999")
    found = source(home, feed="events")
    for ends in (False, True):
        reader = travelled(found.streamReader(found.schema()))
        if ends:
            reader.prepareForTriggerAvailableNow()
        with pytest.raises(OutOfRange, match="beyond the tail"):
            reader.latestOffset({"0": 999}, ReadAllAvailable())
        assert reader.latestOffset({"0": checkpoint(1, 0)}, ReadAllAvailable()) == {"0": checkpoint(1, 0)}


def test_in_spark(spark: SparkSession, home: Home, tmp_path: Path) -> None:
    append(home, 6)
    assert spark.read.format("tailrace").options(home=home.url, feed="events").load().count() == 6
    for total in (6, 9):
        query = (
            spark.readStream.format("tailrace")
            .options(home=home.url, feed="events")
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
        assert {s: sorted(i) for s, i in where(rows).items()} == {f"S-{n}": list(range(total // 3)) for n in range(3)}
        append(home, 3)
