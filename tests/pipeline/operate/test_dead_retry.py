"""Very many dead letters: listed and tried again by reading each of them, and the log, a few times."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.home import Home
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Mode
from tailrace.log.topic import Topic
from tailrace.pipeline.deliver import dead_letters as letters
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import ledger, operator
from tailrace.pipeline.operate.dead_retry import retry
from tailrace.pipeline.operate.step import step
from tests.pipeline.shop import definition, sink

COUNT, LISTED = 300, 2000
ROW_BYTES = 20_000


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    (tmp_path / "c0").mkdir()
    with tailrace.open(tmp_path / "home") as made:
        yield made


def bury_many(home: Home, places: range, value: str = "v") -> None:
    """A letter for each place, as `bury` writes it."""
    topic = home.topic(letters.dead_name("shop"), partitions=1)
    some = []
    for at in places:
        row = make_rows("A", pa.record_batch({"id": pa.array([at]), "v": pa.array([value])}), ["id"], mode=Mode.SYNC)
        about = {"writer": "c0", "partition": 0, "offset": at, "namespace": "A", "id": str(at), "error": "no"}
        some.append((b"c0", msgspec.json.encode({**about, "row": letters._encoded(row)})))
    topic.append(some)


def test_each_is_read_a_few_times_however_many_there_are(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog(home, "shop", partitions=1)
    log.begin(0)
    for n in (1, 2):  # two states of each document, so that all but the last letters are overtaken
        columns = pa.record_batch({"id": pa.array(range(COUNT)), "v": pa.array([str(n)] * COUNT)})
        log.take_in([make_rows("A", columns, ["id"], mode=Mode.SYNC)], n)
    made = definition(tmp_path, sink(tmp_path), partitions=1, tables=())
    ledger.remember(home, made)
    bury_many(home, range(COUNT + 3))
    operator.mark(home, "shop", "c0", 0, 2 * COUNT - 1, "delivered")
    read, fetch = [0], Topic.fetch

    def counting(topic: Topic, *args: object, **settings: object) -> Iterator[Fetched]:
        for fetched in fetch(topic, *args, **settings):  # type: ignore[arg-type]
            read[0] += fetched.data.num_rows
            yield fetched

    monkeypatch.setattr(Topic, "fetch", counting)
    outcomes = [one.outcome for one in retry(made, [], "mended")]
    assert outcomes == ["overtaken"] * COUNT + ["delivered"] * 3
    assert read[0] <= 3 * (COUNT + 3) + 2 * COUNT
    assert operator.dead(home, "shop") == []
    assert list(step(made, "c0", 1, "looking")) == []


def test_a_listing_keeps_none_of_the_messages(home: Home) -> None:
    bury_many(home, range(LISTED), "v" * ROW_BYTES)
    tracemalloc.start()
    try:
        found = operator.dead(home, "shop")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == LISTED
    assert peak < LISTED * ROW_BYTES / 3
