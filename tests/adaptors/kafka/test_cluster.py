"""The cluster's requests, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka.admin import OffsetSpec

from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.settings import KafkaSource

PARTITION = ("orders", 0)


class Log:
    """A partition whose records have these times; another one comes between any two requests."""

    def __init__(self, *times: int) -> None:
        self.times = list(times)

    def answer(self, asked: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], int]:
        ((partition, spec),) = asked.items()
        if spec._value == OffsetSpec.latest()._value:
            offset = len(self.times)
        else:
            offset = next((n for n, time in enumerate(self.times) if time >= spec._value), -1)
        self.times.append(1000)
        return {partition: offset}


@pytest.mark.parametrize(("times", "offset"), [((), 0), ((10, 20), 2), ((10, 20, 600), 2), ((700,), 0)])
def test_a_record_that_comes_while_offsets_are_asked_for_is_not_skipped(
    times: tuple[int, ...], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(KafkaSource(brokers="127.0.0.1:9"))
    monkeypatch.setattr(cluster, "_offsets", Log(*times).answer)
    assert cluster.offsets_at([PARTITION], 500) == {PARTITION: offset}
