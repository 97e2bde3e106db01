"""CloudEvents, record by record."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.adaptors.formats.cloud_events import CloudEventsDecoder
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import BadInput
from tests.adaptors.formats.records import Record

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid"}


def read(event: dict[str, Any]) -> list[dict[str, Any]]:
    found = CloudEventsDecoder().rows("orders", [Record(None, event)], 1)
    return [message.data for batch in found for message in messages_of(batch)]


def test_data_in_base64_is_bytes_or_json() -> None:
    assert read({**EVENT, "data_base64": "/w=="})[0]["data_bytes"] == b"\xff"
    assert read({**EVENT, "data_base64": "eyJhIjogMX0="})[0]["data"] == '{"a": 1}'


@pytest.mark.parametrize("encoded", ["/w=", "no base64!", "ü", 7, ["/w=="]])
def test_data_in_wrong_base64_is_refused_with_its_place(encoded: Any) -> None:
    with pytest.raises(BadInput, match=r"orders.*data_base64 is not in base64"):
        read({**EVENT, "data_base64": encoded})
