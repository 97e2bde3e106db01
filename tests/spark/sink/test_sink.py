"""The sinks, called as Spark calls them: what tasks store, and what the driver makes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace import Mode, Op
from tailrace.errors import (
    BadInput,
    BadName,
    BadRecord,
    BadSetting,
    Conflict,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from tailrace.home import Home
from tailrace.log.format import manifest
from tailrace.log.format.chunk import MANIFEST
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.attempt import roll
from tailrace.spark.runtime.homes import home_at
from tailrace.spark.sink import sink
from tailrace.spark.sink import task as writing
from tests.spark.direct import batch, fill, source, travelled, values, write


def of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


VALUE = of(value=BinaryType())
KEYED = of(key=StringType(), value=StringType())
HEADER = of(key=StringType(), value=BinaryType())


def rows(*found: Any, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(found, pa.binary()), **columns})


def numbered(start: int, count: int, size: int = 100) -> pa.RecordBatch:
    return rows(*(b"%d" % n + b"." * size for n in range(start, start + count)))


def numbers(home: Home, name: str = "orders") -> list[int]:
    (found,) = values(home.topic(name)).values()
    return [int(v.rstrip(b".")) for v in found if v is not None]


# --- rows
def test_every_column_becomes_what_it_says(home: Home) -> None:
    topic = home.topic("orders", partitions=4)
    schema = of(
        key=StringType(), value=StringType(), timestamp=TimestampType(), mode=StringType(), op=StringType(),
        headers=ArrayType(HEADER), partition=IntegerType(), offset=IntegerType(),
    )  # fmt: skip
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given = pa.record_batch(
        {
            "key": ["a", None],
            "value": ["x", None],
            "timestamp": pa.array([at, None], pa.timestamp("us", "UTC")),
            "mode": ["sync", None],
            "op": ["delete", None],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], to_arrow_type(ArrayType(HEADER))),
            "partition": pa.array([3, None], pa.int32()),
            "offset": pa.array([77, 78], pa.int32()),
        }
    )  # fmt: skip
    write(home, [[given]], schema, topic="orders")
    first, second = sorted(topic.records(), key=lambda record: record.key is None)
    assert (first.partition, first.key, first.value, first.headers) == (3, b"a", b"x", (("h", b"1"),))
    assert (first.mode, first.op, first.time) == (Mode.SYNC, Op.DELETE, at)
    assert (second.key, second.value, second.headers, second.attributes) == (None, None, (), 0)
    assert abs(second.time - datetime.now(UTC)).total_seconds() < 60


def test_rows_with_a_key_go_where_every_producer_puts_them(home: Home) -> None:
    topic, other = home.topic("orders", partitions=8), home.topic("other", partitions=8)
    keys = [f"key-{n}" for n in range(100)]
    write(home, [[pa.record_batch({"key": keys, "value": keys})]], KEYED, topic="orders")
    other.append([(k.encode(), k.encode()) for k in keys])
    assert values(topic) == values(other)


def test_rows_without_a_key_do_not_all_go_to_one_partition(home: Home) -> None:
    topic = home.topic("orders", partitions=4)
    for _ in range(40):
        write(home, [[rows(b"x")]], VALUE, topic="orders")
    assert all(len(found) >= 2 for found in values(topic).values())


def test_several_topics_in_one_write(home: Home) -> None:
    for name in ("a", "b"):
        home.topic(name, partitions=1)
    schema = of(value=BinaryType(), topic=StringType())
    tasks = [[rows(b"1", b"2", b"3", topic=["a", "b", "a"])], [rows(b"4", b"5", topic=["b", "b"])]]
    write(home, tasks, schema)
    assert values(home.topic("a")) == {0: [b"1", b"3"]}
    assert values(home.topic("b")) == {0: [b"2", b"4", b"5"]}
    with pytest.raises(UnknownTopic, match="'c'"):
        write(home, [[rows(b"1", topic=["a"]), rows(b"6", topic=["c"])]], schema)
    with pytest.raises(BadRecord, match="1 rows have no topic"):
        write(home, [[rows(b"1", topic=pa.array([None], pa.string()))]], schema)
    assert len(batch(home, subscribe="a,b")) == 5


SCHEMAS: dict[str, tuple[StructType, dict[str, str], type[Exception], str]] = {
    "no value": (of(key=BinaryType()), {}, BadSetting, "no 'value'"),
    "number": (of(value=DoubleType()), {}, BadSetting, "double; it must be binary or string"),
    "void": (of(value=NullType()), {}, BadSetting, "'value' is void"),
    "typo": (of(vlaue=BinaryType()), {}, BadSetting, "did you mean 'value'"),
    "nowhere": (VALUE, {"topic": ""}, BadSetting, "say where to"),
    "headers": (of(value=BinaryType(), headers=ArrayType(StringType())), {}, BadSetting, "array<struct<key: string"),
    "topic": (VALUE, {"topic": "odrers"}, UnknownTopic, "did you mean 'orders'"),
    "option": (VALUE, {"topci": "orders"}, BadSetting, "did you mean 'topic'"),
    "writeId": (VALUE, {"writeId": "a b"}, BadName, "cannot be a writeId's name"),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEMAS)
def test_bad_input_is_refused_before_any_task(home: Home, case: str) -> None:
    home.topic("orders", partitions=1)
    schema, options, error, said = SCHEMAS[case]
    given = {k: v for k, v in {"topic": "orders", **options}.items() if v}
    with pytest.raises(error, match=said):
        source(home, **given).writer(schema, False)


def test_bad_rows_are_refused_and_nothing_is_written(home: Home) -> None:
    topic = home.topic("orders", partitions=2, max_record_bytes=10)
    schema = of(value=BinaryType(), op=StringType())
    with pytest.raises(BadRecord, match="'op' has 'destroy'"):
        write(home, [[rows(b"x", op=["insert"]), rows(b"x", op=["destroy"])]], schema, topic="orders")
    with pytest.raises(TooLarge, match="max_record_bytes"):
        write(home, [[rows(b"x" * 11)]], VALUE, topic="orders")
    with pytest.raises(UnknownPartition, match="'partition' says 2: there is no partition 2"):
        schema = of(value=BinaryType(), partition=IntegerType())
        write(home, [[rows(b"x", partition=pa.array([2], pa.int32()))]], schema, topic="orders")
    assert topic.ends() == {0: (0, 0), 1: (0, 0)}


def test_a_topic_is_never_overwritten(home: Home) -> None:
    home.topic("orders", partitions=1)
    with pytest.raises(BadSetting, match="only ever appended to"):
        source(home, topic="orders").writer(VALUE, True)
    with pytest.raises(BadSetting, match="'writeId' is for df"):
        source(home, topic="orders", writeId="x").streamWriter(VALUE, False)


# --- once
def test_a_write_with_an_id_is_there_once(home: Home) -> None:
    home.topic("orders", partitions=1)
    for _ in range(2):
        write(home, [[numbered(0, 5)], [numbered(5, 5)]], VALUE, topic="orders", writeId="w")
    assert numbers(home) == list(range(10))
    write(home, [[numbered(10, 1)]], VALUE, topic="orders")
    write(home, [[numbered(11, 1)]], VALUE, topic="orders", writeId="w2")
    assert numbers(home) == list(range(12))
    home.topic("other", partitions=1)
    with pytest.raises(BadInput, match="'w' was made before, into other topics"):
        write(home, [[numbered(0, 5)]], VALUE, topic="other", writeId="w")


def test_a_write_id_is_not_a_producers_name(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    topic.named_producer("w").send_batch([(None, b"0")])
    write(home, [[numbered(1, 1)]], VALUE, topic="orders", writeId="w")
    assert numbers(home) == [0, 1]


def stream(home: Home, query: str, number: int, *tasks: list[pa.RecordBatch]) -> list[writing.TaskOutput]:
    """One batch of a streaming query, up to before its commit; gives the tasks' messages."""

    class Task:
        @staticmethod
        def getLocalProperty(name: str) -> str:
            return {sink.QUERY_ID: query}[name]

    writer = travelled(source(home, topic="orders", checkpointLocation="/x").streamWriter(VALUE, False))
    with patch.object(sink.TaskContext, "get", return_value=Task):
        return [travelled(writer.write(iter(task))) for task in tasks]


def settle(home: Home, number: int, messages: list[Any]) -> None:
    source(home, topic="orders").streamWriter(VALUE, False).commit(messages, number)


def test_a_batch_of_a_query_is_there_once(home: Home) -> None:
    home.topic("orders", partitions=1)
    first = stream(home, "q", 0, [numbered(0, 5)], [], [numbered(5, 5)])
    settle(home, 0, first)
    settle(home, 0, first)  # its answer was lost
    settle(home, 0, stream(home, "q", 0, [numbered(0, 10)]))  # it was run again
    settle(home, 3, stream(home, "q", 3, [numbered(10, 5)]))  # 1 and 2 were empty
    settle(home, 2, stream(home, "q", 2, [numbered(99, 5)]))  # from a driver that should have ended
    settle(home, 0, stream(home, "other", 0, [numbered(15, 5)]))
    settle(home, 4, [None, *stream(home, "q", 4, [])])
    assert numbers(home) == list(range(20))


def test_a_batch_of_nobody_knows_which_query_is_refused(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    messages = stream(home, "q", 0, [numbered(0, 5)])
    messages[0].query = None
    with pytest.raises(BadInput, match="which query batch 7 is of"):
        settle(home, 7, messages)
    assert topic.ends() == {0: (0, 0)}


# --- chunks
def chunks(home: Home) -> list[Any]:
    topic = home.topic("orders")
    return list(home.store.run(topic.log.head()).own.entries)


def test_small_tasks_make_one_chunk(home: Home) -> None:
    home.topic("orders", partitions=1, compression="zstd")
    write(home, [[numbered(n * 10, 10)] for n in range(50)], VALUE, topic="orders")
    assert numbers(home) == list(range(500))
    assert len(chunks(home)) == 1


def test_rows_keep_the_order_of_the_tasks_however_large_they_are(home: Home) -> None:
    home.topic("orders", partitions=1)
    sizes = [10, 2000, 10, 10, 9000, 2000, 10]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    tasks = [[numbered(start, count, 1000)] for start, count in zip(starts, sizes, strict=True)]
    write(home, tasks, VALUE, topic="orders")
    assert numbers(home) == list(range(sum(sizes)))
    assert all(entry.gen == 0 for entry in chunks(home))


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_is_left_after_large_chunks_is_stored_too(home: Home, compression: str) -> None:
    home.topic("orders", partitions=1, compression=compression)
    tasks = [[numbered(0, 4200, 1000), numbered(4200, 5)], [numbered(4205, 4200, 1000), numbered(8405, 5)]]
    write(home, tasks, VALUE, topic="orders")
    assert numbers(home) == list(range(8410))
    assert not any(entry.inline for entry in chunks(home))


def test_many_chunks_go_through_a_manifest(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    fill(topic, {0: 1})
    with patch.object(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 200):
        write(home, [[numbered(n * 100, 100, 1000)] for n in range(20)], VALUE, topic="orders", writeId="w")
        write(home, [[numbered(n * 100, 100, 1000)] for n in range(20)], VALUE, topic="orders", writeId="w")
    assert [entry.kind for entry in chunks(home)] == [0, MANIFEST]
    fill(topic, {0: 1}, 3)
    found = [row["value"].rstrip(b".") for row in batch(home, subscribe="orders")]
    assert found == [b"0.0", *(b"%d" % n for n in range(2000)), b"0.3"]
    assert len(batch(home, subscribe="orders", minPartitions=7)) == 2002
    for _ in range(3):
        home.store.run(clean(topic.log))
    assert len(batch(home, subscribe="orders", minPartitions=7)) == 2002
    home.store.run(raise_floor(topic.log, {0: 2002}))
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    home.store.run(drop_pages(topic.log))
    assert list(home.store.objects.list("topics/")) == []


def test_a_commit_of_very_many_chunks_is_one_small_write(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    tasks = 1000
    with patch.object(writing, "MAX_BYTES_HANDED_TO_DRIVER", 0):  # each task puts an object
        writer = source(home, topic="orders", writeId="w").writer(VALUE, False)
        messages = [writer.write(iter([numbered(n, 1)])) for n in range(tasks)]
    table = home_at(home.url).store.table
    with patch.object(table, "write", wraps=table.write) as written:
        writer.commit(messages)
    named, made = (call.args for call in written.mock_calls)  # the first makes the item of the writeId
    assert len(named) == 1
    assert len(repr(made)) < 4000
    (entry,) = chunks(home)
    assert entry.kind == MANIFEST
    assert numbers(home) == list(range(tasks))
    assert topic.ends() == {0: (0, tasks)}


def test_a_write_overtaken_by_cleaning_takes_other_names(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    writer = source(home, topic="orders").writer(VALUE, False)
    message = writer.write(iter([numbered(0, 5000, 1000)]))
    home.store.run(clean(topic.log))  # gen 0 → 1; what was put before may still be appended
    with patch.object(type(home.store.objects), "delete", lambda self, names: None):
        home.store.run(clean(topic.log))  # gen 0 is fenced, what was put under it is still there
    writer.commit([message])
    assert numbers(home) == list(range(5000))
    assert all(e.gen == 2 for e in chunks(home))


def test_a_write_cleaned_away_fails_and_can_be_run_again(home: Home) -> None:
    topic = home.topic("orders", partitions=1)
    writer = source(home, topic="orders").writer(VALUE, False)
    message = writer.write(iter([numbered(0, 5000, 1000)]))
    for _ in range(2):
        home.store.run(clean(topic.log))
    with pytest.raises(Unavailable, match="was cleaned away before it could be committed"):
        writer.commit([message])
    writer.commit([writer.write(iter([numbered(0, 5000, 1000)]))])
    assert numbers(home) == list(range(5000))


def test_a_topic_made_again_meanwhile_is_noticed(home: Home) -> None:
    home.topic("orders", partitions=1)
    writer = source(home, topic="orders").writer(VALUE, False)
    message = writer.write(iter([numbered(0, 5)]))
    home.delete_topic("orders")
    home.topic("orders", partitions=1)
    with pytest.raises(Conflict, match="deleted and made again"):
        writer.commit([message])
