"""The batch source, called as Spark calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import IntegerType, StructType

from tailrace import Mode, Op
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadHome, BadSetting, OutOfRange, UnknownPartition, UnknownTopic
from tailrace.home import Home
from tailrace.log.format.chunk import encode
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.placement import place
from tailrace.spark import columns
from tailrace.spark.format import Tailrace
from tailrace.spark.runtime.homes import home_at
from tailrace.spark.source.task import BATCH_BYTES
from tests.spark.direct import batch, fill, parts, source

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_every_column_is_what_was_stored(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    with topic.producer() as out:
        out.send(
            b"k", b"v", timestamp=DAY, headers=[("a", b"1"), ("b", b"")], mode=Mode.SYNC, op=Op.DELETE, partition=1
        )
        out.send(None, b"", timestamp=DAY, op=Op.UPDATE, partition=1)
        out.send(b"", None, timestamp=DAY, mode=Mode.COMPLETE, partition=1)
    common = {"topic": "orders", "partition": 1, "timestamp": DAY}
    assert batch(home, subscribe="orders") == [
        {
            **common,
            "offset": 0,
            "mode": "sync",
            "op": "delete",
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}],
        },
        {**common, "offset": 1, "mode": "copy", "op": "update", "key": None, "value": b"", "headers": None},
        {**common, "offset": 2, "mode": "complete", "op": "insert", "key": b"", "value": None, "headers": None},
    ]


def test_only_named_columns_are_given(home: Home) -> None:
    fill(home.topic("orders", partitions=2), {0: 2})
    assert batch(home, subscribe="orders", columns="value, offset") == [
        {"value": b"0.0", "offset": 0},
        {"value": b"0.1", "offset": 1},
    ]
    for named, said in {"value,kye": "did you mean 'key'", "key,key": "named twice"}.items():
        with pytest.raises(BadSetting, match=said):
            source(home, subscribe="orders", columns=named).schema()


def test_columns_that_are_not_named_are_not_made(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    typed = make_rows("shop", pa.record_batch({"id": [1, 2]}), ["id"])
    home.store.run(commit([home.store.run(place(topic.log, encode({0: [typed]})))]))
    assert [row["value"] for row in batch(home, subscribe="orders")] == [b'{"id":1}', b'{"id":2}']
    with patch.object(columns, "plain", side_effect=AssertionError("the rows were made into JSON")):
        assert [row["offset"] for row in batch(home, subscribe="orders", columns="offset,key")] == [0, 1]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_columns_that_are_not_named_are_neither_decoded_nor_sent(home: Home, compression: str) -> None:
    count, size = 20_000, 500
    topic = home.topic("orders", partitions=1, compression=compression)
    keys = pa.array([b"%d" % n for n in range(count)], pa.binary())
    topic.append(pa.table({"key": keys, "value": pa.array([b"x" * size] * count, pa.binary())}))
    pool, decoded, sent = pa.default_memory_pool(), {}, {}
    for named in ("key,value", "key", "op,topic"):
        found = source(home, subscribe="orders", columns=named)
        reader = found.reader(found.schema())
        (task,) = reader.partitions()
        before = pool.total_bytes_allocated()
        given = list(reader.read(task))
        decoded[named] = pool.total_bytes_allocated() - before
        sent[named] = sum(b.get_total_buffer_size() if compression == "zstd" else b.nbytes for b in given)
        assert sum(b.num_rows for b in given) == count
    assert decoded["key,value"] > (count * size if compression == "zstd" else 0)
    assert sent["key,value"] > count * size
    read = 0 if compression == "zstd" else count * size  # a run is read whole, since one checksum covers it
    for named in ("key", "op,topic"):
        assert decoded[named] < read + count * 60
        assert sent[named] < count * 60


def test_batches_are_small_enough_that_spark_need_not_wait(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    topic.append(pa.table({"value": pa.array([b"x" * 200] * 30_000, pa.binary())}))
    for n in range(50):
        topic.append(pa.table({"value": pa.array([b"%d" % n] * 100, pa.binary())}))
    found = source(home, subscribe="orders", columns="offset,value")
    reader = found.reader(found.schema())
    (task,) = reader.partitions()
    given = list(reader.read(task))
    assert [n for b in given for n in b.column("offset").to_pylist()] == list(range(35_000))
    assert max(b.nbytes for b in given) < 2 * BATCH_BYTES
    assert len(given) < 20  # those of 100 records together


def test_a_schema_of_the_callers_is_checked(home: Home) -> None:
    home.topic("orders", partitions=2)
    for name, said in {"offset": "bigint, not int", "offest": "did you mean 'offset'"}.items():
        with pytest.raises(BadSetting, match=said):
            source(home, subscribe="orders").reader(StructType().add(name, IntegerType()))


def test_topics_by_list_pattern_and_assignment(home: Home) -> None:
    for name in ("a1", "a2", "b1"):
        fill(home.topic(name, partitions=2), {0: 1, 1: 2})
    assert {r["topic"] for r in batch(home, subscribe="a1, b1")} == {"a1", "b1"}
    assert {r["topic"] for r in batch(home, subscribePattern="a.")} == {"a1", "a2"}
    assert batch(home, subscribePattern="a") == []  # the whole name must match
    assigned = batch(home, assign=json.dumps({"a1": [1], "b1": [0]}))
    assert [(r["topic"], r["partition"], r["offset"]) for r in assigned] == [("a1", 1, 0), ("a1", 1, 1), ("b1", 0, 0)]


def test_offsets_from_and_to(home: Home) -> None:
    fill(home.topic("orders", partitions=2), {0: 5, 1: 5})
    given = {"startingOffsets": '{"orders": {"0": 3, "1": -1}}'}
    assert pairs(batch(home, subscribe="orders", **given)) == [(0, 3), (0, 4)]
    given = {"startingOffsets": '{"orders": {"1": 4}}', "endingOffsets": '{"orders": {"0": 1, "1": -1}}'}
    assert pairs(batch(home, subscribe="orders", **given)) == [(0, 0), (1, 4)]
    assert batch(home, subscribe="orders", startingOffsets="latest") == []
    with pytest.raises(OutOfRange, match="beyond its end, 5"):
        batch(home, subscribe="orders", startingOffsets='{"orders": {"0": 6}}')
    with pytest.raises(UnknownPartition, match="no partition 7"):
        batch(home, subscribe="orders", endingOffsets='{"orders": {"7": 1}}')


def test_times_from_and_to(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    for n in range(10):
        with topic.transaction() as out:
            out.send(None, b"%d" % n, timestamp=DAY + timedelta(hours=n))
    since, to = DAY + timedelta(hours=3), int((DAY + timedelta(hours=6)).timestamp() * 1000)
    rows = batch(home, subscribe="orders", startingTimestamp=since.isoformat(), endingTimestamp=to)
    assert [row["value"] for row in rows] == [b"3", b"4", b"5"]
    later = (DAY + timedelta(days=9)).isoformat()
    assert batch(home, subscribe="orders", startingTimestamp=later) == []


@pytest.mark.parametrize("settings", [{"minPartitions": 7}, {"maxRecordsPerPartition": 3}, {"minPartitions": 1}, {}])
def test_long_ranges_are_split_and_each_record_is_read_once(home: Home, settings: dict[str, int]) -> None:
    fill(home.topic("orders", partitions=3), {0: 10, 1: 1, 2: 4})
    tasks = parts(home, subscribe="orders", **settings)
    everything = [(row["partition"], row["offset"]) for task in tasks for row in task]
    assert everything == [(0, n) for n in range(10)] + [(1, 0)] + [(2, n) for n in range(4)]
    if "maxRecordsPerPartition" in settings:
        assert max(sum(1 for r in task if r["partition"] == 0) for task in tasks) <= 3
    if settings.get("minPartitions") == 7:
        assert len(tasks) >= 7
    if not settings:
        assert len(tasks) == 1  # few records: one task


def test_filters_leave_out_what_cannot_match(home: Home) -> None:
    for name in ("a", "b"):
        fill(home.topic(name, partitions=3), {0: 10, 1: 10, 2: 10})
    read = parts(
        home, EqualTo(("topic",), "a"), In(("partition",), (1, 2)), LessThan(("partition",), 2), subscribe="a,b"
    )
    assert {(r["topic"], r["partition"]) for task in read for r in task} == {("a", 1)}
    rows = batch(home, GreaterThan(("offset",), 3), LessThan(("offset",), 6), subscribe="a")
    assert pairs(rows) == [(q, n) for q in range(3) for n in (4, 5)]
    assert batch(home, EqualTo(("topic",), "a"), EqualTo(("topic",), "b"), subscribe="a,b") == []
    assert batch(home, EqualTo(("value",), b"x"), subscribe="a") != []  # not ours to judge


@contextmanager
def gets(home: Home) -> Iterator[list[tuple[str, int]]]:
    """What is fetched from the home's objects meanwhile: names, and bytes of each."""
    objects = home_at(home.url).store.objects
    found: list[tuple[str, int]] = []
    get = objects.get_ranges

    def counted(name: str, ranges: Any) -> Any:
        got = get(name, ranges)
        found.append((name, sum(map(len, got))))
        return got

    with patch.object(objects, "get_ranges", counted):
        yield found


def test_chunks_of_another_time_are_not_fetched(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    for n in (0, 5, 2, 9, 1):  # time need not rise with the offset
        topic.append(_rows(DAY + timedelta(hours=n), 2000))
    since = DAY + timedelta(hours=2)
    bounds = GreaterThanOrEqual(("timestamp",), since), LessThan(("timestamp",), since + timedelta(hours=4))
    with gets(home) as fetched:
        rows = batch(home, *bounds, subscribe="orders")
    assert {row["timestamp"].hour for row in rows} == {5, 2}
    assert len(rows) == 4000
    assert len(fetched) == 3  # one of them when the beginning was looked for


CUTS: dict[str, tuple[dict[str, str], tuple[Filter, ...], int, float]] = {
    "everything": ({}, (), 12_000, 1),
    "offsets": ({"startingOffsets": '{"orders": {"0": 1000}}', "endingOffsets": '{"orders": {"0": 2500, "1": 0}}'},
                (), 1500, 2 / 12),
    "one offset": ({}, (EqualTo(("offset",), 2500),), 2, 2 / 12),
    "a partition": ({"assign": '{"orders": [1]}'}, (), 6000, 1 / 2),
    "a partition by a filter": ({}, (EqualTo(("partition",), 0),), 6000, 1 / 2),
    "nothing": ({"startingOffsets": "latest"}, (), 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CUTS)
def test_chunks_outside_the_range_are_not_fetched(home: Home, case: str) -> None:
    topic = home.topic("orders", partitions=2)
    for _ in range(6):  # six chunks of two runs, a thousand records each
        with topic.transaction() as out:
            for n in range(2000):
                out.send(None, b"x" * 200, partition=n % 2)
    everything = sum(o.size for o in home.store.objects.list("topics/"))
    options, filters, count, share = CUTS[case]
    named = {} if "assign" in options else {"subscribe": "orders"}
    with gets(home) as fetched:
        rows = batch(home, *filters, **named, **options)
    assert len(rows) == count
    assert sum(size for _, size in fetched) == pytest.approx(everything * share, rel=0.02)


def test_where_records_are_is_known_without_fetching_them(home: Home) -> None:
    topic = home.topic("orders", partitions=2)
    for _ in range(3):
        with topic.transaction() as out:
            for n in range(2000):
                out.send(None, b"x" * 200, partition=n % 2)
    given = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1500, "1": 0}}', "minPartitions": 3}
    for named in ("offset,topic,partition", "partition"):
        with gets(home) as fetched:
            found = batch(home, **given, columns=named)
        assert fetched == []
        want = [{k: v for k, v in row.items() if k in named.split(",")} for row in batch(home, **given)]
        assert found == want
    with gets(home) as fetched:
        assert len(batch(home, **given, columns="offset,op")) == len(want)
    assert fetched


def _rows(when: datetime, count: int) -> Any:
    stamps = pa.array([when] * count, pa.timestamp("ms", "UTC"))
    return pa.table({"value": pa.array([b"x" * 50] * count, pa.binary()), "timestamp": stamps})


def test_what_was_removed_is_an_error_or_passed_over(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    fill(topic, {0: 10})
    home.store.run(raise_floor(topic.log, {0: 4}))
    home.store.run(drop_pages(topic.log))
    assert len(batch(home, subscribe="orders")) == 6
    given = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 2}}'}
    with pytest.raises(OutOfRange, match=r"offsets 2 to 3 of partition 0 of 'orders' .*'failOnDataLoss'"):
        batch(home, **given)
    assert pairs(batch(home, **given, failOnDataLoss="false"))[0] == (0, 4)


def test_removed_while_it_is_read(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    fill(topic, {0: 10})
    for lost, said in (("true", "was removed"), ("false", None)):
        found = source(home, subscribe="orders", failOnDataLoss=lost)
        reader = found.reader(found.schema())
        (task,) = reader.partitions()
        home.store.run(raise_floor(topic.log, {0: 4 if lost == "true" else 6}))
        if said:
            with pytest.raises(OutOfRange, match=said):
                list(reader.read(task))
        else:
            assert sum(b.num_rows for b in reader.read(task)) == 4


BAD: dict[str, tuple[dict[str, str], type[Exception], str]] = {
    "unknown option": ({"subscribe": "orders", "startingOffset": "earliest"}, BadSetting, "'startingOffsets'"),
    "no topics named": ({}, BadSetting, "one of the options subscribe"),
    "two ways": ({"subscribe": "orders", "assign": "{}"}, BadSetting, "one of the options subscribe"),
    "unknown topic": ({"subscribe": "odrers"}, UnknownTopic, "did you mean 'orders'"),
    "bad pattern": ({"subscribePattern": "("}, BadSetting, "no pattern"),
    "bad number": ({"subscribe": "orders", "minPartitions": "0"}, BadSetting, "minPartitions"),
    "bad bool": ({"subscribe": "orders", "failOnDataLoss": "perhaps"}, BadSetting, "failOnDataLoss"),
    "bad offsets": ({"subscribe": "orders", "startingOffsets": "[1]"}, BadSetting, "startingOffsets is as in"),
    "below all": (
        {"subscribe": "orders", "startingOffsets": '{"orders": {"0": -3}}'},
        BadSetting,
        "startingOffsets is as in",
    ),
    "offsets of another": ({"subscribe": "orders", "startingOffsets": '{"x": {"0": 1}}'}, BadSetting, "not read here"),
    "both": (
        {"subscribe": "orders", "startingOffsets": "latest", "startingTimestamp": "5"},
        BadSetting,
        "are both given",
    ),
    "bad time": ({"subscribe": "orders", "startingTimestamp": "noon"}, BadSetting, "milliseconds since 1970"),
    "no zone": ({"subscribe": "orders", "startingTimestamp": "2026-01-01"}, BadSetting, "no time zone"),
    "for streams": ({"subscribe": "orders", "maxOffsetsPerTrigger": "5"}, BadSetting, "spark.readStream"),
    "no partition": ({"assign": '{"orders": [2]}'}, UnknownPartition, "no partition 2"),
}


def test_a_home_in_memory_is_refused() -> None:
    with pytest.raises(BadHome, match="one process"):
        Tailrace({"home": "memory://x", "subscribe": "orders"})


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_on_the_driver(home: Home, case: str) -> None:
    home.topic("orders", partitions=2)
    options, error, said = BAD[case]
    with pytest.raises(error, match=said):
        found = source(home, **options)
        found.reader(found.schema()).partitions()
