"""How many documents a second are written into an OpenSearch index?"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.helpers import parallel_bulk
from tests.servers.opensearch import opensearch

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.adaptors.contract import Who
from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink.writer import SearchWriter
from tailrace.adaptors.rows.rows import columns_of, make_rows
from tailrace.log.record import Mode

RATE = Figure("documents/s")
NAMESPACE, BATCH = "items", 20_000
OURS, THEIRS, TUNED = "tailrace's sink", "parallel_bulk", "parallel_bulk, 5,000 a request"
INDEX = {"settings": {"number_of_shards": 1, "number_of_replicas": 0}}
_numbers = itertools.count()


def question(quick: bool) -> Question:
    """New documents, and the same again as replacements."""
    count = 20_000 if quick else 300_000
    sides = {
        OURS: (
            ours,
            "stage(), finish() of 20,000 rows at a time: external versions, offsets stored",
        ),
        THEIRS: (partial(theirs, 500), "thread_count=4, its own chunks of 500; no versions, no offsets"),
        TUNED: (partial(theirs, 5000), "thread_count=4, chunk_size=5000; no versions, no offsets"),
    }
    return Question(
        name="search_bulk",
        title="documents written into an OpenSearch index a second",
        note=f"{count:,} documents of five fields, about 250 bytes, into a new index of one shard, whose "
        "translog is synced with each request. From Arrow rows or dictionaries that are there, without Spark, until "
        "the last is acknowledged; they are counted after the clock has stopped. One node, 4 requests at a time.",
        sides=[Side(name, mode, partial(opened, write, count), name != OURS) for name, (write, mode) in sides.items()],
        figures=[RATE],
        base=OURS,
        targets=[at_least(THEIRS), at_least(TUNED)],
        rounds=1 if quick else 5,
    )


def at_least(peer: str) -> Target:
    """As many as the peer."""

    def ratio(results: Results) -> float:
        return results.of(OURS, RATE.name) / results.of(peer, RATE.name)

    return Target(f"≥ 1 times {peer}", ratio, 1)


def batches(count: int) -> list[pa.RecordBatch]:
    """The documents, as rows."""
    return [_rows(range(first, min(first + BATCH, count))) for first in range(0, count, BATCH)]


def _rows(numbers: range) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "id": list(numbers),
        "customer": [f"customer {n % 5000}" for n in numbers],
        "total": [n % 100_000 / 7 for n in numbers],
        "at": pa.array([1_700_000_000_000 + n for n in numbers], pa.timestamp("ms", "UTC")),
        "note": ["x" * 140 + str(n) for n in numbers],
    }
    return make_rows(NAMESPACE, pa.RecordBatch.from_pydict(columns), ["id"], mode=Mode.SYNC)


@contextlib.contextmanager
def opened(write: Callable[[str, str, int], Callable[[], None]], count: int, folder: Path) -> Iterator[Run]:
    """A node of its own for each side, and a new index for each round."""
    with opensearch(folder / "node") as server:

        def run() -> Figures:
            index = f"{NAMESPACE}-{next(_numbers)}"
            client = OpenSearch(server.url)
            client.indices.create(index=index, body=INDEX)
            seconds, _ = timed(write(server.url, index, count))
            client.indices.refresh(index=index)
            expect("documents", client.count(index=index)["count"], count)
            client.indices.delete(index=index)
            return {RATE.name: count / seconds}

        yield run


def ours(url: str, index: str, count: int) -> Callable[[], None]:
    """The adaptor's sink, as a run uses it."""
    given = batches(count)

    def write() -> None:
        with contextlib.closing(SearchWriter(SearchSink(uri=url, index=index, state=f"{index}-state"))) as writer:
            who = Who("bench", "sink", 1)
            writer.claim(who)
            for n, batch in enumerate(given):
                writer.finish([writer.stage([batch])], who, {"0": n + 1})

    return write


def theirs(chunk: int, url: str, index: str, count: int) -> Callable[[], None]:
    """opensearch-py's helper."""
    documents = [row for batch in batches(count) for row in columns_of(batch).to_pylist()]

    def write() -> None:
        actions = ({"_index": index, "_id": str(one["id"]), "_source": one} for one in documents)
        client = OpenSearch(url, timeout=60, pool_maxsize=8)
        for done, said in parallel_bulk(client, actions, thread_count=4, chunk_size=chunk):
            expect(f"an answer ({said})", done, True)

    return write
