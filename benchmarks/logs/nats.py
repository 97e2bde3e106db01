"""NATS JetStream through nats-py, 8 streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from tests.servers.nats import nats as nats_server

from benchmarks.contract import Pair, Place
from benchmarks.load import KEY, PARTITIONS, Load

SUBJECTS = [f"bench-{partition}" for partition in range(PARTITIONS)]
BATCH = 1000
AT_ONCE = 4


class JetStream:
    """A connection on an event loop of its own; a message has no key, so the key stands before the value."""

    def __init__(self, runner: asyncio.Runner, client: Client) -> None:
        self.runner, self.client = runner, client
        self.jetstream: JetStreamContext = client.jetstream(timeout=30)

    def append(self, load: Load) -> int:
        """Atomic batches of 1,000, the most the server takes, four on their way at once."""
        return self.runner.run(self._append(load))

    async def _append(self, load: Load) -> int:
        waiting: list[asyncio.Future[int]] = []
        acknowledged = 0
        for subject, payloads in _grouped(load):
            waiting.append(asyncio.ensure_future(self._publish(subject, payloads)))
            if len(waiting) == AT_ONCE:
                acknowledged += await waiting.pop(0)
        return acknowledged + sum(await asyncio.gather(*waiting))

    async def _publish(self, subject: str, payloads: list[bytes]) -> int:
        """One sync of the server for the whole batch; the answer to the last message says how many were stored."""
        batch = uuid.uuid4().hex
        for sequence, payload in enumerate(payloads[:-1], 1):
            await self.client.publish(subject, payload, headers=_header(batch, sequence))
        last = {**_header(batch, len(payloads)), "Nats-Batch-Commit": "1"}
        answer = json.loads((await self.client.request(subject, payloads[-1], headers=last, timeout=60)).data)
        if "error" in answer:
            raise RuntimeError(f"JetStream refused a batch: {answer['error']}")
        return int(answer["count"])

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """js.publish() of each record, `at_once` of them as tasks of the loop, spread over the streams."""
        return self.runner.run(self._append_each(pairs, at_once))

    async def _append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        parts = [self._append_part(SUBJECTS[place % PARTITIONS], pairs[place::at_once]) for place in range(at_once)]
        return [seconds for part in await asyncio.gather(*parts) for seconds in part]

    async def _append_part(self, subject: str, pairs: Sequence[Pair]) -> list[float]:
        seconds = []
        for key, value in pairs:
            start = time.perf_counter()
            await self.jetstream.publish(subject, key + value)
            seconds.append(time.perf_counter() - start)
        return seconds

    def read(self) -> tuple[int, int]:
        """An ordered push consumer, one stream after the other; all at once, the server drops the slow client."""
        reader = _Tally()
        self.runner.run(self._deliver(reader))
        return reader.records, reader.size

    def pairs(self) -> Iterable[Pair]:
        """Every message, cut after the key."""
        reader = _Keep()
        self.runner.run(self._deliver(reader))
        return ((payload[:KEY], payload[KEY:]) for payload in reader.payloads)

    async def _deliver(self, reader: _Tally) -> None:
        for subject in SUBJECTS:
            reader.expect((await self.jetstream.stream_info(subject)).state.messages)
            subscription = await self.jetstream.subscribe(
                subject, cb=reader.take, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            await asyncio.wait_for(reader.finished.wait(), 300)
            await subscription.unsubscribe()

    def count(self) -> int:
        """By each stream's state."""
        return self.runner.run(self._count())

    async def _count(self) -> int:
        states = [(await self.jetstream.stream_info(subject)).state for subject in SUBJECTS]
        return sum(state.messages for state in states)


class _Tally:
    """Counts what is delivered until it has seen as much as there is."""

    def __init__(self) -> None:
        self.expected = self.records = self.size = 0
        self.finished = asyncio.Event()

    def expect(self, more: int) -> None:
        """So many more messages are to come."""
        self.expected += more
        self.finished.clear()
        if not more:
            self.finished.set()

    async def take(self, message: Msg) -> None:
        """One message."""
        self.records += 1
        self.size += len(message.data) - KEY
        if self.records == self.expected:
            self.finished.set()


class _Keep(_Tally):
    """Keeps it as well."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[bytes] = []

    async def take(self, message: Msg) -> None:
        """One message."""
        self.payloads.append(message.data)
        await super().take(message)


def _header(batch: str, sequence: int) -> dict[str, str]:
    return {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}


def _grouped(load: Load) -> Iterator[tuple[str, list[bytes]]]:
    groups: list[list[bytes]] = [[] for _ in SUBJECTS]
    for place, key, value in zip(load.places, load.keys, load.values, strict=True):
        group = groups[place]
        group.append(key + value)
        if len(group) == BATCH:
            yield SUBJECTS[place], group
            groups[place] = []
    yield from ((subject, group) for subject, group in zip(SUBJECTS, groups, strict=True) if group)


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """JetStream with sync_interval always, and the streams."""
    with nats_server(folder) as server:
        with connect(server.url) as streams:
            for subject in SUBJECTS:
                setting = StreamConfig(name=subject, subjects=[subject], allow_atomic=True)
                streams.runner.run(streams.jetstream.add_stream(setting))
        yield Place(server.url, server.pid)


@contextlib.contextmanager
def connect(address: str) -> Iterator[JetStream]:
    """A client of the server there."""
    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(address, pending_size=64 << 20))
        try:
            yield JetStream(runner, client)
        finally:
            runner.run(client.close())
