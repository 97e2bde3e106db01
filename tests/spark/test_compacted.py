"""The Spark source on a compacted topic: the records there are, at their offsets, in any split."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.log.format import head as heads
from tests.spark.direct import batch


@pytest.mark.parametrize("options", [{}, {"minPartitions": 7}, {"maxRecordsPerPartition": 9}])
def test_a_batch_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, int]) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 300)
    with tailrace.open(tmp_path) as home:
        topic = home.topic("t", partitions=2, compact=True, tombstone_ms=0)
        for n in range(120):
            with topic.producer() as out:
                out.send(b"k%d" % (n % 10), b"v%d" % n if n % 10 != 3 else None, timestamp=n)
        assert home.upkeep()[0].compacted_records > 60
        want = sorted((r.partition, r.offset, r.key, r.value) for r in topic.records())
        found = batch(home, subscribe="t", **options)
        assert sorted((r["partition"], r["offset"], r["key"], r["value"]) for r in found) == want
        assert len(found) < 60
        places = batch(home, subscribe="t", columns="partition,offset", **options)
        assert sorted((r["partition"], r["offset"]) for r in places) == [place[:2] for place in want]
