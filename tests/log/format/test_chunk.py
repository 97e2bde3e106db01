"""Chunks: any Arrow tool opens them, a run is read alone, and no changed byte goes unnoticed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import Damaged
from tailrace.log.format.chunk import (
    BATCH_ROWS,
    HEADERS,
    SCHEMAS,
    TYPED,
    Chunk,
    Compression,
    PartitionRun,
    _cut,
    batches_of,
    decode,
    encode,
    in_parts,
    messages,
)
from tailrace.log.upkeep.repack import RunWriter, chunk_of
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.record_batch import batch_of

COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4", "zstd")


def filled(partitions: int = 3, count: int = 10, headers: bool = False) -> Buffer:
    buffer = Buffer(partitions, 1 << 20)
    for n in range(count):
        buffer.add(b"k%d" % n, b"v%d" % n * 10, 1000 + n, {"h": b"%d" % n} if headers and n % 2 else None)
    return buffer


def piece(chunk: Chunk, run: PartitionRun) -> memoryview:
    return memoryview(b"".join(chunk.parts))[run.position : run.position + run.length]


def values(chunk: Chunk) -> dict[int, list[bytes]]:
    out: dict[int, list[bytes]] = {}
    for run in chunk.runs:
        batches = decode(chunk.kind, run, piece(chunk, run), "here")
        out[run.partition] = [v for batch in batches for v in batch.column("value").to_pylist()]
    return out


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("headers", [False, True])
def test_any_arrow_tool_opens_a_chunk(compression: Compression, headers: bool) -> None:
    chunk = filled(headers=headers).encode(compression)
    whole = b"".join(chunk.parts)
    assert len(whole) == chunk.size
    assert chunk.kind == (HEADERS if headers else 0)
    table = pa.ipc.open_stream(whole).read_all()
    assert table.schema == SCHEMAS[chunk.kind]
    assert sorted(table.column("key").to_pylist()) == sorted(b"k%d" % n for n in range(10))
    assert table.column("timestamp").type == pa.timestamp("ms", "UTC")


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", [3, 5000, BATCH_ROWS + 7])
def test_bytes_in_parts_are_the_same_bytes(compression: Compression, rows: int) -> None:
    """Those of a large batch are written as they lie in memory."""
    buffer = Buffer(1, 1 << 20)
    for n in range(rows):
        buffer.add(b"%d" % n, b"%d" % n * 7, n)
    (batches,) = buffer.encode("none").batches().values()
    batch = pa.concat_batches(batches)
    parts = in_parts(batch, SCHEMAS[0], compression)
    assert b"".join(parts) == messages([batch], SCHEMAS[0], compression).to_pybytes()
    assert len(parts) == 1 if rows == 3 else len(parts) > 5


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("after", range(6))
def test_parts_are_cut_to_the_byte(before: int, after: int) -> None:
    """Wherever their borders lie: those of today's Arrow happen to be where the cuts are."""
    whole = b"abcdefghijklm"
    parts = [memoryview(whole)[start:end] for start, end in ((0, 3), (3, 4), (4, 9), (9, 11), (11, 13))]
    cut = _cut(parts, before, after)
    assert b"".join(cut) == whole[before : len(whole) - after]
    assert all(len(part) for part in cut)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_run_is_read_alone(compression: Compression) -> None:
    buffer = Buffer(5, 1 << 20)
    for n in range(100):
        buffer.add(None, b"%d" % n, n, partition=(0, 2, 4)[n % 3])
    chunk = buffer.encode(compression)
    assert chunk.counts == {0: 34, 2: 33, 4: 33}
    assert values(chunk) == {q: [b"%d" % n for n in range(first, 100, 3)] for first, q in enumerate((0, 2, 4))}
    assert [(run.latest, run.span) for run in chunk.runs] == [(99, 99), (97, 96), (98, 96)]


@pytest.mark.parametrize("headers", [False, True])
def test_an_inline_chunk_holds_the_runs_alone(headers: bool) -> None:
    chunk = filled(headers=headers).encode("none")
    data, runs = chunk.inline()
    assert len(data) < chunk.size
    for run, inline in zip(chunk.runs, runs, strict=True):
        assert data[inline.position : inline.position + inline.length] == piece(chunk, run)
        assert (inline.partition, inline.count, inline.crc) == (run.partition, run.count, run.crc)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_many_rows_are_several_batches(compression: Compression) -> None:
    rows = 2 * BATCH_ROWS + 1
    batch = batch_of([None] * rows, [b"%d" % n for n in range(rows)], [0] * rows)
    chunk = encode({0: [batch.slice(0, 5), batch.slice(5)]}, compression)
    (run,) = chunk.runs
    batches = decode(chunk.kind, run, piece(chunk, run), "here")
    assert max(b.num_rows for b in batches) <= BATCH_ROWS
    assert sum(b.num_rows for b in batches) == run.count == rows
    assert batches[-1].column("value")[-1].as_py() == b"%d" % (rows - 1)


def test_decoding_copies_nothing() -> None:
    buffer = Buffer(1, 1 << 20)
    buffer.add(b"k", b"v" * 100_000, 0)
    chunk = buffer.encode("none")
    (run,) = chunk.runs
    data = piece(chunk, run)
    (batch,) = decode(chunk.kind, run, data, "here")
    value = batch.column("value").buffers()[2]
    start = pa.py_buffer(data).address
    assert start <= value.address < start + len(data)


def test_a_slice_of_a_large_batch_is_a_small_chunk() -> None:
    batch = batch_of([b"k"] * 1000, [b"v" * 1000] * 1000, [0] * 1000)
    assert encode({0: [batch.slice(10, 1)]}).size < 3000


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("headers", [False, True])
def test_every_flipped_byte_is_noticed(compression: Compression, headers: bool) -> None:
    chunk = filled(1, 3, headers).encode(compression)
    (run,) = chunk.runs
    good = bytes(piece(chunk, run))
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        with pytest.raises(Damaged, match=r"here: .*their checksum differs") as error:
            decode(chunk.kind, run, memoryview(bad), "here")
        assert (error.value.where, error.value.position) == ("here", run.position)


@settings(max_examples=50)
@given(st.integers(0, 400))
def test_every_cut_is_noticed(length: int) -> None:
    chunk = filled(1, 3).encode("none")
    (run,) = chunk.runs
    data = piece(chunk, run)
    if length < len(data):
        with pytest.raises(Damaged, match=f"cut to {length}"):
            decode(chunk.kind, run, data[:length], "here")


def test_typed_rows_keep_their_schemas() -> None:
    def typed(**columns: pa.Array) -> pa.RecordBatch:
        data = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
        rows = len(data)
        return pa.RecordBatch.from_arrays(
            [pa.array([5] * rows, pa.timestamp("ms", "UTC")), pa.array([0] * rows, pa.uint8()), data],
            names=["timestamp", "attributes", "data"],
        )

    one, two = typed(a=pa.array([1, 2])), typed(a=pa.array(["x"]), b=pa.array([True]))
    chunk = encode({0: [one, two, two], 1: [two]})
    assert chunk.kind == TYPED
    assert chunk.counts == {0: 4, 1: 1}
    first, second = chunk.runs
    assert decode(chunk.kind, first, piece(chunk, first), "here") == [one, two, two]
    assert decode(chunk.kind, second, piece(chunk, second), "here") == [two]
    assert chunk.inline() == (b"".join(chunk.parts), chunk.runs)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_is_compressed_is_decoded_in_bounded_pieces(compression: Compression) -> None:
    """A batch of many bytes is written as several; each is uncompressed when it is asked for, none that is skipped."""
    value = pa.repeat(pa.scalar(bytes(1 << 20), pa.binary()), 64)
    stamps, marks = pa.repeat(pa.scalar(0, pa.int64()), 64), pa.repeat(pa.scalar(0, pa.uint8()), 64)
    columns = [stamps.view(SCHEMAS[0].field(0).type), marks, pa.nulls(64, pa.binary()), value]
    whole = pa.record_batch(columns, schema=SCHEMAS[0])
    for chunk in (
        encode({0: [whole]}, compression),
        chunk_of(0, {0: added(whole, compression)}),
    ):
        (run,) = chunk.runs
        data = memoryview(b"".join(chunk.parts))[run.position : run.position + run.length]
        batches = batches_of(0, run, data, "here", skip=40)
        found = list(batches)
        assert len(found) >= 4
        assert max(batch.nbytes for batch in found) <= 17 << 20
        assert sum(batch.num_rows for batch in found) == 64
        assert [batch.num_columns for batch in found[:2]] == [0, 0]


def added(batch: pa.RecordBatch, compression: Compression) -> RunWriter:
    writer = RunWriter(0, compression)
    writer.add(batch, 0)
    return writer
