"""Reading in asyncio gives what blocking reading gives."""

from __future__ import annotations

import pytest

from tailrace.errors import (
    BadInput,
    UnknownPartition,
)
from tailrace.log.topic import Topic
from tests.log.homes import HERE, fill, homes, orders, run

home = homes(HERE)
topic = orders(4)


def test_reading_gives_what_blocking_reading_gives(topic: Topic):
    fill(topic, 40)

    async def main() -> None:
        batches = [batch async for batch in topic.aio.read(max_bytes=1)]
        assert batches == list(topic.read(max_bytes=1))
        assert [r async for r in topic.aio.records(2, 3)] == list(topic.records(2, 3))
        with pytest.raises(UnknownPartition):
            [batch async for batch in topic.aio.read(9)]
        with pytest.raises(BadInput):
            [batch async for batch in topic.aio.read(start="middle")]

    run(main)
