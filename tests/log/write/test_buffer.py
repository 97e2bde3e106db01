"""Buffers: where records go on their way into a chunk, and what is refused before it gets there."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import BadRecord, TooLarge, UnknownPartition
from tailrace.log.format.chunk import decode
from tailrace.log.record import partition_of
from tailrace.log.write.buffer import RECORD_OVERHEAD_BYTES, Buffer
from tailrace.log.write.input import pieces, rows


def contents(buffer: Buffer) -> dict[int, list[tuple[object, ...]]]:
    """(key, value, timestamp, attributes, headers)s by partition, as they come out of the chunk."""
    chunk = buffer.encode("none")
    data = memoryview(b"".join(chunk.parts))
    out: dict[int, list[tuple[object, ...]]] = {}
    for run in chunk.runs:
        for batch in decode(chunk.kind, run, data[run.position : run.position + run.length], "a chunk"):
            stamps = batch.column(0).view(pa.int64())
            headers = batch.column(4).to_pylist() if batch.num_columns == 5 else [None] * batch.num_rows
            out.setdefault(run.partition, []).extend(
                zip(
                    batch.column(2).to_pylist(),
                    batch.column(3).to_pylist(),
                    stamps.to_pylist(),
                    batch.column(1).to_pylist(),
                    [tuple((h["name"], h["value"]) for h in some or ()) for some in headers],
                    strict=True,
                )
            )
    return out


# --- where records go
def test_a_null_key_goes_to_the_partition_with_the_least_buffered() -> None:
    buffer = Buffer(3, 1000)
    went = []
    for size in (10, 300, 20, 0, 0, 0):
        went.append(buffer.place(buffer.add(None, b"x" * size, 0))[0])
    assert went == [0, 1, 2, 0, 2, 0]


def test_null_keys_are_spread_evenly() -> None:
    buffer = Buffer(8, 1000)
    for n in range(800):
        buffer.add(None, b"x" * (n % 7), 0)
    sizes = [bin.size for bin in buffer.bins.values()]
    assert len(sizes) == 8
    assert max(sizes) - min(sizes) <= RECORD_OVERHEAD_BYTES + 7


record = st.tuples(
    st.one_of(st.none(), st.binary(max_size=3)),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.integers(0, 10**12),
    st.sampled_from([(), (), (), (("h", b"1"),), (("h", b""), ("h", b"2"))]),
    st.sampled_from([0, 0, 0, 1, 9, 22]),
    st.one_of(st.none(), st.none(), st.integers(0, 3)),
)


plain = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d"]), st.just(b"v"), st.just(1), st.just(()), st.just(0), st.none()
)
many = st.integers(2, 100).map(lambda n: [(b"%d" % i, b"v", 2, (), 0, None) for i in range(n)])
batch = st.lists(record, min_size=1, max_size=3)


@settings(max_examples=60)
@given(st.lists(st.one_of(plain, plain, record, batch, many.map(tuple)), min_size=15, max_size=60))
def test_every_record_is_at_its_place_in_the_order_it_came(given: list[object]) -> None:
    """Rows one by one and in batches, with and without keys, headers, attributes, partitions."""
    given = [
        one for some in given for one in (some if isinstance(some, tuple) and isinstance(some[0], tuple) else [some])
    ]
    buffer = Buffer(4, 1000)
    came: list[tuple[int | tuple[int, int], int | None, tuple[object, ...]]] = []
    for one in given:
        if isinstance(one, tuple):
            key, value, stamp, headers, marks, partition = one
            row = buffer.add(key, value, stamp, headers, marks, partition)
            wanted = partition_of(key, 4) if partition is None and key is not None else partition
            came.append((row, wanted, (key, value, stamp, marks, headers)))
        else:
            table = pa.table({"key": pa.array([r[0] for r in one], pa.binary()), "value": [r[1] or b"" for r in one]})
            ((q, rank, count),) = buffer.add_batch(rows(table.to_batches()[0], 7, 1000), 2)
            assert (q, count) == (2, len(one))
            came += [((2, rank + n), 2, (r[0], r[1] or b"", 7, 0, ())) for n, r in enumerate(one)]
    if not came:
        return
    stored, last = contents(buffer), dict.fromkeys(range(4), -1)
    for at, wanted, what in came:
        q, rank = buffer.place(at) if isinstance(at, int) else at
        assert q == wanted or wanted is None
        assert stored[q][rank] == what
        assert rank == last[q] + 1, "in the order they came, without a gap"
        last[q] = rank


@given(st.lists(st.binary(max_size=2), min_size=1, max_size=300), st.integers(1, 5))
def test_batches_keep_the_order_of_each_partition(keys: list[bytes], partitions: int) -> None:
    buffer = Buffer(partitions, 1000)
    table = pa.table({"key": keys, "value": [b"%d" % n for n in range(len(keys))]})
    for piece in pieces(table):
        buffer.add_batch(rows(piece, 0, 1000))
    for q, found in contents(buffer).items():
        assert [v for _, v, *_ in found] == [b"%d" % n for n, k in enumerate(keys) if partition_of(k, partitions) == q]


def test_null_keys_among_others_in_a_batch() -> None:
    buffer = Buffer(2, 1000)
    buffer.add(None, b"x" * 100, 0, partition=0)
    table = pa.table({"key": [b"a", None, b"b", None], "value": [b"1", b"2", b"3", b"4"]})
    buffer.add_batch(rows(table.to_batches()[0], 0, 1000))
    assert {b"2", b"4"} <= {value for _, value, *_ in contents(buffer)[1]}


def test_places_asked_for_by_many_threads_at_once() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            buffer = Buffer(8, 1000)
            for n in range(1000):
                buffer.add(b"%d" % n, None, 0)
            buffer.settle()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(buffer.place, range(999, -1, -1)))
            assert len(set(found)) == 1000
    finally:
        sys.setswitchinterval(before)


# --- what is refused, before anything is taken
def refused(buffer: Buffer, error: type[Exception], says: str, *arguments: object, **named: object) -> None:
    before = (buffer.size, buffer.count, buffer.rows)
    with pytest.raises(error, match=says):
        buffer.add(*arguments, **named)  # type: ignore[arg-type]
    assert (buffer.size, buffer.count, buffer.rows) == before


def test_records_that_cannot_be_stored() -> None:
    buffer = Buffer(2, 10)
    buffer.add(b"k", b"v", 0, partition=1)
    refused(buffer, BadRecord, "a record's key is bytes or None, not a str", "k", b"v", 0)
    refused(buffer, BadRecord, "a record's value is bytes or None, not a int", b"k", 5, 0)
    refused(buffer, TooLarge, "a record has 11 bytes, over the topic's max_record_bytes of 10", b"12345", b"123456", 0)
    for partition in (2, -1, True, 1.0, "1", []):
        refused(buffer, UnknownPartition, "no partition .*; the topic has 0 to 1", b"k", b"v", 0, partition=partition)
    assert contents(buffer) == {1: [(b"k", b"v", 0, 0, ())]}


class Words(bytes):
    """Bytes by another name."""


def test_a_kind_of_bytes_counts_as_bytes() -> None:
    buffer = Buffer(1, 10)
    refused(buffer, TooLarge, "a record has 11 bytes", Words(b"12345"), Words(b"123456"), 0)
    buffer.add(Words(b"12345"), Words(b"12345"), 0)
    assert buffer.size == RECORD_OVERHEAD_BYTES + 10


@pytest.mark.parametrize(
    "headers",
    [{"a": "text"}, {"a": None}, {1: b""}, [("a",)], [("a", b"", 1)], 5, "ab", b"ab", {"\ud800": b""}, [None]],
)
def test_headers_that_are_none(headers: object) -> None:
    """Refused when they are sent: later they would fail everybody's records in the chunk."""
    refused(Buffer(1, 100), BadRecord, "headers", b"k", b"v", 0, headers)


def test_headers_count_and_are_copied() -> None:
    buffer = Buffer(1, 100)
    refused(buffer, TooLarge, "a record has 107 bytes", b"k", b"v", 0, {"name": b"x" * 101})
    given = {"näme": b"1234"}
    buffer.add(b"k", b"v", 0, given)
    assert buffer.size == RECORD_OVERHEAD_BYTES + 2 + 5 + 4
    given["näme"] = b"changed"
    pairs = [("a", b"1"), ("a", b"2")]
    buffer.add(b"k", b"v", 0, pairs)
    pairs.clear()
    assert [headers for *_, headers in contents(buffer)[0]] == [(("näme", b"1234"),), (("a", b"1"), ("a", b"2"))]


# --- batches of Arrow
def taken(**columns: object) -> pa.RecordBatch:
    return rows(pa.RecordBatch.from_pydict(columns), 5, 10)


def test_columns_that_are_not_given_are_filled_in() -> None:
    batch = taken(value=[b"a", None])
    assert batch.schema.names == ["timestamp", "attributes", "key", "value"]
    assert batch.column(0).view(pa.int64()).to_pylist() == [5, 5]
    assert batch.column(1).to_pylist() == [0, 0]
    assert batch.column(2).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("error", "says", "columns"),
    [
        (BadRecord, "value is missing", {"key": [b"a"]}),
        (BadRecord, "vlaue", {"vlaue": [b"a"], "value": [b"a"]}),
        (BadRecord, "the column timestamp has 1 nulls", {"value": [b"a"], "timestamp": pa.array([None], pa.int64())}),
        (BadRecord, "the column timestamp has values outside", {"value": [b"a"], "timestamp": [-1]}),
        (BadRecord, "the column timestamp has values outside", {"value": [b"a"], "timestamp": [253_402_300_800_000]}),
        (BadRecord, "the column value is struct", {"value": [{"a": 1}]}),
        (BadRecord, "the column attributes is string", {"value": [b"a"], "attributes": ["x"]}),
        (BadRecord, "the column attributes has values", {"value": [b"a"], "attributes": [3]}),
        (BadRecord, "the column attributes has values", {"value": [b"a"], "attributes": [24]}),
        (BadRecord, "the column headers is int64", {"value": [b"a"], "headers": [1]}),
        (TooLarge, "a record has 12 bytes", {"value": [b"a", b"x" * 12]}),
        (TooLarge, "a record has 14 bytes", {"key": [b"x" * 7], "value": [b"x" * 7]}),
        (TooLarge, "a record has 15 bytes", {"value": [b"a"], "headers": [[{"name": "abcd", "value": b"x" * 10}]]}),
    ],
)
def test_batches_that_cannot_be_stored(error: type[Exception], says: str, columns: dict[str, object]) -> None:
    with pytest.raises(error, match=says):
        taken(**columns)


def test_a_column_twice() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(BadRecord, match="twice"):
        rows(batch, 0, 10)


def test_other_types_become_ours() -> None:
    batch = taken(value=pa.array(["text"], pa.large_string()), timestamp=pa.array([7], pa.timestamp("ms")))
    assert batch.column(3).to_pylist() == [b"text"]
    assert batch.column(0).view(pa.int64()).to_pylist() == [7]


def test_a_slice_counts_its_own_bytes() -> None:
    """However large the table it was cut from."""
    table = pa.table({"value": [b"x" * 1000] * 4000})
    buffer = Buffer(1, 10_000)
    buffer.add_batch(rows(table.slice(5, 2).to_batches()[0], 0, 10_000))
    assert 2000 < buffer.size < 3000


@pytest.mark.parametrize(
    "records", [[b"ab", 1], [(b"a",)], [(b"a", b"b", b"c")], [("a", b"b")], [(b"a", 1)], 5, None, "ab"]
)
def test_pairs_that_are_none(records: object) -> None:
    with pytest.raises(BadRecord, match=r"pairs|bytes or None"):
        list(pieces(records))  # type: ignore[arg-type]


def test_pieces_are_about_a_chunk() -> None:
    table = pa.table({"value": [b"x" * 100_000] * 100})
    assert [piece.num_rows for piece in pieces(table)] == [41, 41, 18]
    assert list(pieces(table.slice(0, 0))) == []
    assert list(pieces([])) == []


def test_many_records_at_once_are_placed_as_one_by_one_and_those_without_a_key_go_round() -> None:
    keys = [None, b"a", None, b"b", b"a", None] * 5
    values = [b"%d" % n for n in range(len(keys))]
    one, many = Buffer(4, 1000, 1), Buffer(4, 1000, 1)
    rows = many.add_together(keys, values, 7, [3] * len(keys))
    for key, value in zip(keys, values, strict=True):
        one.add(key, value, 7, None, 3)
    assert many.rows == one.rows == len(rows)
    assert many.size == one.size
    keyed = [row for row in rows if keys[row] is not None]
    assert [many.place(row)[0] for row in keyed] == [one.place(row)[0] for row in keyed]
    free = [many.place(row)[0] for row in rows if keys[row] is None]
    assert free == [(1 + n) % 4 for n in range(len(free))]
    found = {}
    for q, batches in many.encode("none").batches().items():
        found |= {(q, n): row for n, row in enumerate(pa.Table.from_batches(batches).to_pylist())}
    for row in rows:
        record = found[many.place(row)]
        assert (record["key"], record["value"], record["attributes"]) == (keys[row], values[row], 3)
