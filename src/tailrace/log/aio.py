"""Topics for asyncio: the same buffers, appends, readers and leases, carried out by `Store.arun`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa

from tailrace.log.groups.async_consumer import AsyncConsumer
from tailrace.log.groups.group import offsets
from tailrace.log.groups.prefetch import ConsumerSettings
from tailrace.log.read.fetched import Fetched
from tailrace.log.read.reader import POLL_BYTES, Reader
from tailrace.log.record import Record
from tailrace.log.topic import Position, Topic, as_arrow, as_records
from tailrace.log.write.async_producer import AsyncProducer
from tailrace.log.write.group_commit import GroupSettings
from tailrace.log.write.linger import Linger
from tailrace.storage.calls import Store


class AsyncTopic:
    """A topic for asyncio, made by `topic.aio`; cheap."""

    def __init__(self, store: Store, topic: Topic, *, wall: Callable[[], float] = time.time) -> None:
        self._store, self._topic, self._wall = store, topic, wall

    def producer(self, *, linger: float | None = None, max_bytes: int = 64 * 1024 * 1024) -> AsyncProducer:
        """A producer: `async with topic.aio.producer() as out`.  See `topic.producer` for its settings."""
        local = self._topic.log.joins_inline
        settings = GroupSettings(Linger.of(linger, local=local), max_bytes, max_puts=2 if local else 4)
        return AsyncProducer(self._store, self._topic.log, self._topic.described, settings, wall=self._wall)

    def consumer(self, group: str, **settings: Any) -> AsyncConsumer:
        """A member of a consumer group: `async for record in topic.aio.consumer("billing")`.  See `topic.consumer`."""
        return AsyncConsumer(self._store, self._topic, group, ConsumerSettings.of(settings), wall=self._wall)

    async def read(
        self,
        partition: int | None = None,
        start: Position = "earliest",
        *,
        max_bytes: int = POLL_BYTES,
        from_floor: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """All current records as Arrow; see `topic.read`."""
        async for fetched in self._fetch(partition, start, max_bytes, from_floor):
            yield as_arrow(fetched)

    async def records(self, partition: int | None = None, start: Position = "earliest") -> AsyncIterator[Record]:
        """All current records, one by one, in order within each partition."""
        async for fetched in self._fetch(partition, start, POLL_BYTES, from_floor=False):
            for record in as_records(self._topic.name, fetched):
                yield record

    async def _fetch(
        self, partition: int | None, start: Position, max_bytes: int, from_floor: bool
    ) -> AsyncIterator[Fetched]:
        if partition is not None:
            self._topic._check_partition(partition)
        wanted = range(self._topic.partitions) if partition is None else [partition]
        positions = await self._store.arun(offsets(self._topic.log, wanted, start))
        reader = Reader(self._topic.log, positions, from_floor=from_floor)
        while fetched := await self._store.arun(reader.poll(max_bytes)):
            for one in fetched:
                yield one
