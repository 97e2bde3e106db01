"""Task: reads a slice of a topic as Arrow batches of a size that suits Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from tailrace.home import Home
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import Reader
from tailrace.spark.columns import as_batch, stored
from tailrace.spark.source.ranges import TaskSlice
from tailrace.spark.source.topics import log_of

T = TypeVar("T")
POLL_ROWS, POLL_BYTES = 50_000, 8 * 1024 * 1024
"""Rows and bytes that are fetched at a time, while Spark works on the batch before."""
BATCH_ROWS, BATCH_BYTES = 16_384, 1024 * 1024
"""Rows and bytes at which a batch ends.  Spark works on a whole batch while the next is made, and its bytes are still
in the processor's cache; smaller batches cost more than that gains."""


def read(home: Home, slice: TaskSlice, schema: pa.Schema, *, from_floor: bool) -> Iterator[pa.RecordBatch]:
    """The records of a slice, in order within each partition."""
    polls = fetched(home, slice, from_floor, stored(schema.names))
    for some in gathered(ahead(polls)):
        yield as_batch(slice.ranges[0].topic, some, schema)


def fetched(home: Home, slice: TaskSlice, from_floor: bool, columns: frozenset[str]) -> Iterator[list[Fetched]]:
    """These columns of the slice's records, poll after poll."""
    first = slice.ranges[0]
    reader = Reader(
        log_of(home, first.topic, first.id),
        {r.partition: r.start for r in slice.ranges},
        until={r.partition: r.end for r in slice.ranges},
        times=slice.times,
        from_floor=from_floor,
        columns=columns,
    )
    while some := home.store.run(reader.poll(POLL_BYTES, POLL_ROWS)):
        yield some


def gathered(polls: Iterator[list[Fetched]]) -> Iterator[list[Fetched]]:
    """Join the small runs of a slice until they make a batch, and cut large ones."""
    some: list[Fetched] = []
    rows = size = 0
    for one in (piece for poll in polls for f in poll for piece in cut(f)):
        some.append(one)
        rows, size = rows + one.data.num_rows, size + one.data.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield some
            some, rows, size = [], 0, 0
    if some:
        yield some


def cut(one: Fetched) -> Iterator[Fetched]:
    """Cut a batch into equal pieces of at most about twice the size of a batch."""
    count = one.data.num_rows
    parts = max(1, count // BATCH_ROWS, min(count, one.data.nbytes // BATCH_BYTES))
    for n in range(parts):
        first = count * n // parts
        yield one if parts == 1 else one.rows(first, count * (n + 1) // parts - first)


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Fetch each element in a thread while the task works on the one before."""
    end = object()
    with ThreadPoolExecutor(1, "tailrace-ahead") as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]
