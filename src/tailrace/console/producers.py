"""The producers that a server's requests share: appends that come at the same time are committed together."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from tailrace.errors import Closed, Fenced
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.write.acknowledgement import OffsetSpan
from tailrace.log.write.async_producer import AsyncProducer
from tailrace.log.write.input import Records
from tailrace.log.write.named_producer import NamedProducer

MOST_TOPICS, MOST_NAMED = 1000, 1000
TAKEOVERS = 10
"""How often a named producer takes its name back from another server before it says so."""


class Producers:
    """A producer for each topic that is appended to, and one for each name that clients number their batches under."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._topics: OrderedDict[str, tuple[Topic, AsyncProducer]] = OrderedDict()
        self._named: OrderedDict[tuple[str, str], tuple[NamedProducer, asyncio.Lock]] = OrderedDict()

    async def of(self, topic: Topic) -> AsyncProducer:
        """The producer of a topic."""
        found = self._topics.get(topic.id)
        if found is None or found[0].described != topic.described:
            if found is not None:
                await found[1].close()
            found = self._topics[topic.id] = topic, topic.aio.producer()
        self._topics.move_to_end(topic.id)
        while len(self._topics) > MOST_TOPICS:
            _, (_, oldest) = self._topics.popitem(last=False)
            await oldest.close()
        return found[1]

    def drop(self, topic: Topic) -> None:
        """Forget a producer that has failed."""
        self._topics.pop(topic.id, None)

    async def send_numbered(
        self, topic: Topic, name: str, number: int, records: Records, partition: int | None
    ) -> list[OffsetSpan] | None:
        """Store batch `number` of a name once.  The number alone decides, so that a name that another server has taken
        meanwhile is taken back, and the same batch is sent again."""
        for attempt in range(TAKEOVERS):
            producer, lock = await self._producer(topic, name)
            async with lock:
                try:
                    return await asyncio.to_thread(producer.send_batch, records, number=number, partition=partition)
                except Fenced:
                    self._named.pop((topic.id, name), None)
                    if attempt == TAKEOVERS - 1:
                        raise
        raise Closed(f"the producer {name!r} could not be opened")

    async def _producer(self, topic: Topic, name: str) -> tuple[NamedProducer, asyncio.Lock]:
        key = topic.id, name
        if key not in self._named:
            made = await asyncio.to_thread(topic.named_producer, name)
            self._named.setdefault(key, (made, asyncio.Lock()))
            while len(self._named) > MOST_NAMED:
                self._named.popitem(last=False)
        self._named.move_to_end(key)
        return self._named[key]

    async def close(self) -> None:
        """Commit what was sent, and end."""
        for _, producer in self._topics.values():
            await producer.close()
        self._topics.clear()
