"""Staging, with the real client and without a broker."""

from __future__ import annotations

import secrets
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.kafka.cluster import Cluster
from tailrace.adaptors.kafka.settings import KafkaSink
from tailrace.adaptors.kafka.sink import stage
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Rejected

SETTINGS = KafkaSink(brokers="127.0.0.1:9")


def test_a_row_that_is_too_large_to_stage_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """It will be too large again, so a batch that waits for it would wait for ever."""
    monkeypatch.setattr(stage, "INLINE_BYTES", 0)
    monkeypatch.setattr(stage, "PART_BYTES", 10_000)
    monkeypatch.setattr(stage, "MAX_PART_BYTES", 20_000)
    monkeypatch.setattr(Cluster, "ensure", lambda *given: None)
    columns: dict[str, Any] = {"id": ["small", "large"], "text": ["x", secrets.token_hex(30_000)]}
    with pytest.raises(Rejected, match=r"staged of Kafka does not take the record of 'large': .*too large") as refused:
        stage.stage(lambda: Cluster(SETTINGS), SETTINGS, [make_rows("orders", pa.record_batch(columns), ["id"])])
    assert (refused.value.namespace, refused.value.id) == ("orders", "large")
