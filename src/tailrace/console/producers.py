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
"""Producers that the server keeps open, at most: one for each topic, and the named ones."""
TAKEOVERS = 10
"""How often the server takes a producer's name back from another process before it gives up."""


class Producers:
    """A producer for each topic that clients append to, and a named producer for each name under which clients number
    batches."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._topics: OrderedDict[str, tuple[Topic, AsyncProducer]] = OrderedDict()
        self._named: OrderedDict[tuple[str, str], tuple[NamedProducer, asyncio.Lock]] = OrderedDict()

    async def of(self, topic: Topic) -> AsyncProducer:
        """Return the shared producer of a topic; a changed topic gets a new one."""
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
        """Forget a topic's producer after it has failed, so that the next append makes a new one."""
        self._topics.pop(topic.id, None)

    async def send_numbered(
        self, topic: Topic, name: str, number: int, records: Records, partition: int | None
    ) -> list[OffsetSpan] | None:
        """Store batch `number` of a producer's name once, and return its offsets.

        The number alone decides whether the batch is the next one.  So if another server has taken the name meanwhile,
        this one takes it back and sends the same batch again; after TAKEOVERS attempts it raises `Fenced`."""
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
        """Commit what was sent, and close the producers."""
        for _, producer in self._topics.values():
            await producer.close()
        self._topics.clear()
