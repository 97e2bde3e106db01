"""Everyone who reads a compacted topic: groups, lag, times, export, Arrow; on disk, and with processes' own eyes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tailrace
from tailrace.admin.copy import copy
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.interchange.folder import export_topic, import_topic
from tailrace.log.read.fetched import Fetched
from tailrace.log.topic import Topic, as_arrow
from tailrace.log.upkeep.compaction.round import upkeep_key
from tailrace.log.write.record_batch import batch_of
from tests.log.homes import until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)
    with tailrace.open(tmp_path / "home") as home:
        yield home


@pytest.fixture
def topic(home: Home) -> Topic:
    """200 records of 20 keys, the first 180 of them compacted as far as that goes; key 7 is deleted for good."""
    topic = home.topic("t", partitions=2, compact=True, tombstone_ms=0)
    for n in range(200):
        with topic.producer() as out:
            out.send(b"k%d" % (n % 20), b"v%d" % n if n % 20 != 7 else None, timestamp=n)
    (done,) = home.upkeep()
    assert done.compacted_records > 120
    return topic


def state(records: object) -> dict[bytes, bytes]:
    return {r.key: r.value for r in records if r.value is not None}  # type: ignore[attr-defined]


WANT = {b"k%d" % k: b"v%d" % (180 + k) for k in range(20) if k != 7}


def test_the_last_state_is_there(topic: Topic) -> None:
    found = list(topic.records())
    assert state(found) == WANT
    assert len(found) < 100
    again = [row for batch in topic.read() for row in batch.to_pylist()]
    assert sorted((r["partition"], r["offset"], r["value"]) for r in again) == sorted(
        (r.partition, r.offset, r.value) for r in found
    )


def test_a_group_reads_to_the_end_and_its_lag_is_nothing(topic: Topic) -> None:
    with topic.consumer("g", commit_interval=0.05) as consumer:
        got = []
        ran = consumer.run(got.append)
        assert ran.caught_up
        assert state(got) == WANT
        until(lambda: consumer.lag().records == 0)
        assert consumer.lag().seconds == 0
    with topic.consumer("g") as consumer:
        assert consumer.run(lambda record: pytest.fail("given again")).records == 0


def test_a_group_that_is_left_in_the_middle_goes_on_there(topic: Topic) -> None:
    seen = []
    while len(seen) < len(list(topic.records())):
        with topic.consumer("g", max_seconds=5) as consumer:
            for n, record in enumerate(consumer):
                seen.append((record.partition, record.offset))
                if n == 9:
                    consumer.commit()
                    break
                if len(seen) == len(list(topic.records())):
                    consumer.commit()
                    break
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted((r.partition, r.offset) for r in topic.records())


def test_batches_of_a_group(topic: Topic) -> None:
    rows = []
    with topic.consumer("g", max_seconds=3) as consumer:
        for batch in consumer.batches():
            rows += batch.to_pylist()
            if len(rows) >= len(list(topic.records())):
                break
    assert {r["key"]: r["value"] for r in rows if r["value"] is not None} == WANT


def test_an_export_has_the_offsets_and_is_imported_under_them_or_new_ones(
    home: Home, topic: Topic, tmp_path: Path
) -> None:
    export_topic(topic, tmp_path / "out")
    same, other = home.topic("same", partitions=2), home.topic("u", partitions=2)
    import_topic(same, tmp_path / "out")
    assert sorted(record[1:] for record in same.records()) == sorted(record[1:] for record in topic.records())
    import_topic(other, tmp_path / "out", renumber=True)
    assert state(other.records()) == WANT
    assert sum(one.present for one in import_topic(topic, tmp_path / "out")) == len(list(topic.records()))


def test_a_scrub_finds_nothing_wrong(home: Home, topic: Topic) -> None:
    for n in range(20):
        with topic.producer() as out:
            out.send(b"k%d" % n, None, timestamp=1000)
    for _ in range(40):
        topic.append([(b"x", b"y")])
    home.upkeep()
    home.upkeep()
    assert state(topic.records()) == {b"x": b"y"}
    report = home.scrub()
    assert not report.damages


def test_a_copy_is_compacted_from_the_beginning(home: Home, topic: Topic, tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "copy") as other:
        copy(home.store, other.store, home.id, other.url)
        again = other.topic("t")
        assert state(again.records()) == WANT
        assert other.store.table.get(upkeep_key(topic.id)) is None
        other.upkeep()
        assert state(again.records()) == WANT


def test_parts_of_what_was_fetched() -> None:
    offsets = [3, 5, 6, 9, 12, 20]
    data = batch_of([b"k"] * 6, [b"v"] * 6, [1] * 6)
    whole = Fetched(0, 3, data, pa.array([0, *offsets]).slice(1))
    assert [whole.offset_of(n) for n in range(len(offsets))] == offsets
    assert (whole.offset, whole.end) == (offsets[0], offsets[-1] + 1)
    part = whole.between(offsets[1] + 1, offsets[4])
    assert part.offsets.to_pylist() == offsets[2:4]
    assert as_arrow(part).column("offset").to_pylist() == offsets[2:4]
    nothing = whole.between(whole.end, whole.end + 10)
    assert (nothing.data.num_rows, nothing.offset) == (0, whole.end)
    plain = Fetched(0, 10, whole.data.slice(0, 4))
    assert plain.between(0, 12).offsets.to_pylist() == [10, 11]
    assert plain.between(12, 99).offset == 12
    assert plain.between(20, 99).data.num_rows == 0
