"""Spark passes quarantined offsets as every reader does, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace
from tailrace.errors import Damaged
from tailrace.log.format import head as heads
from tests.log.homes import fill
from tests.spark.direct import batch


def test_a_batch_passes_what_is_quarantined(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        topic = home.create_topic("t", 2)
        topic.log.inline_bytes = 0
        for n in range(3):
            fill(topic, 10, 10 * n)
        entry = home.store.run(topic.log.head()).own.entries[1]
        home.store.objects.delete([heads.object_name(topic.id, entry.gen, entry.id)])
        with pytest.raises(Damaged) as caught:
            batch(home, subscribe="t")
        topic.quarantine(caught.value.lost, "a test")
        for lost in home.scrub().damages[0].lost:
            topic.quarantine([lost], "a test")
        for options in ({}, {"columns": "partition,offset"}):
            found = sorted((row["partition"], row["offset"]) for row in batch(home, subscribe="t", **options))
            assert found == [(q, n) for q in range(2) for n in range(15) if not 5 <= n < 10]
