"""Picking columns: the named ones are what a whole decoding gives, and no other is decoded."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Damaged
from tailrace.log.format.arrow_message import about
from tailrace.log.format.chunk import HEADERS, OFFSETS, SCHEMAS, TYPED, Chunk, Compression, decode, encode

COUNT = 3000
NAMES = ("timestamp", "attributes", "key", "value", "headers")
BIG = 500
HEADER = [("h", b"1")]


def made(kind: int, compression: Compression) -> Chunk:
    """A chunk whose values, or typed columns, are by far the largest part of it."""
    if kind == TYPED:
        columns = pa.record_batch({"id": list(range(COUNT)), "text": ["x" * BIG] * COUNT})
        return encode({0: [make_rows("shop", columns, ["id"])]}, compression)
    columns: dict[str, list[Any]] = {
        "timestamp": list(range(COUNT)),
        "attributes": [n % 5 for n in range(COUNT)],
        "key": [b"%d" % n for n in range(COUNT)],
        "value": [None if n % 7 == 3 else b"v" * BIG for n in range(COUNT)],
        "headers": [HEADER if n % 2 else None for n in range(COUNT)],
        "offset": list(range(0, 2 * COUNT, 2)),
    }
    schema = SCHEMAS[kind]
    whole = pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
    return encode({0: [whole.slice(0, 1000), whole.slice(1000)]}, compression)


def read(chunk: Chunk, columns: frozenset[str] | None) -> pa.Table:
    (run,) = chunk.runs
    data = b"".join(chunk.parts)[run.position : run.position + run.length]
    return pa.Table.from_batches(decode(chunk.kind, run, memoryview(data), "here", columns))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("kind", [0, HEADERS, OFFSETS, HEADERS | OFFSETS, TYPED])
def test_named_columns_are_what_they_are_among_all(kind: int, compression: Compression) -> None:
    chunk = made(kind, compression)
    assert chunk.kind == kind
    everything = read(chunk, None)
    for some in (set(some) for count in range(4) for some in combinations((*NAMES, "data"), count)):
        wanted = [n for n in everything.schema.names if n in some or n == "offset"]
        assert read(chunk, frozenset(some)).equals(everything.select(wanted or ["attributes"])), some


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("kind", [0, OFFSETS, TYPED])
def test_columns_that_are_not_named_are_not_uncompressed(kind: int, compression: Compression) -> None:
    chunk, pool = made(kind, compression), pa.default_memory_pool()
    large = frozenset({"value", "data"})
    spent = {}
    for columns in (large, frozenset({"key"}), frozenset[str]()):
        before = pool.total_bytes_allocated()
        read(chunk, columns)
        spent[columns] = pool.total_bytes_allocated() - before
    assert spent[large] > COUNT * BIG * 0.8
    assert spent[frozenset({"key"})] < COUNT * 30 + 2 * chunk.size
    assert spent[frozenset()] < COUNT * 18 + 2 * chunk.size


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_what_is_compressed_is_known(compression: Compression) -> None:
    chunk = made(HEADERS, compression)
    message = pa.ipc.read_message(pa.BufferReader(chunk.parts[1]))
    told = about(message.metadata, message.body)
    assert told.compressed is (compression != "none")
    assert (told.rows, told.body) == (1000, len(message.body))
    plain = pa.ipc.read_record_batch(message, SCHEMAS[HEADERS])
    assert not told.compressed or plain.nbytes <= told.inflated <= plain.nbytes * 1.1 + 1000


def test_damage_in_a_column_that_is_not_named_is_found() -> None:
    chunk = made(0, "none")
    (run,) = chunk.runs
    data = bytearray(chunk.parts[1])
    data[-40] ^= 1  # in the last value
    with pytest.raises(Damaged, match="checksum"):
        decode(chunk.kind, run, memoryview(data), "here", frozenset({"key"}))
