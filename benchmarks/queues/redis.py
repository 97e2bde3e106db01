"""Redis Streams through redis-py and hiredis: one stream, one consumer group."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis
from tests.servers.redis import redis as redis_server

from benchmarks.contract import Place
from benchmarks.queues.contract import Got

STREAM, GROUP = "bench", "consumers"


class RedisStream:
    """XADD, and XREADGROUP with XACK of the batch before in one request."""

    def __init__(self, address: str) -> None:
        self.client = redis.Redis.from_url(address)
        self.name = uuid.uuid4().hex

    def push(self, message: bytes) -> None:
        """An XADD."""
        self.client.xadd(STREAM, {b"m": message})

    def push_many(self, messages: Sequence[bytes]) -> None:
        """All XADDs in one transaction, sent and answered together."""
        with self.client.pipeline(transaction=True) as pipeline:
            for message in messages:
                pipeline.execute_command("XADD", STREAM, "*", b"m", message)
            pipeline.execute()

    def take(self, batch: int, got: Got) -> None:
        """XREADGROUP; what was handled is acknowledged with the next, or at the end."""
        done: list[Any] = []
        while True:
            with self.client.pipeline(transaction=False) as pipeline:
                if done:
                    pipeline.xack(STREAM, GROUP, *done)
                pipeline.xreadgroup(GROUP, self.name, {STREAM: ">"}, count=batch)
                found = pipeline.execute()[-1] or self._wait(batch)
            entries = found[0][1] if found else []
            done = [id for id, _ in entries]
            if got([fields[b"m"] for _, fields in entries]):
                if done:
                    self.client.xack(STREAM, GROUP, *done)
                return

    def _wait(self, batch: int) -> Any:
        return self.client.xreadgroup(GROUP, self.name, {STREAM: ">"}, count=batch, block=50)


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """Redis with appendfsync always."""
    with redis_server(folder) as server:
        with contextlib.closing(redis.Redis.from_url(server.url)) as client:
            client.xgroup_create(STREAM, GROUP, mkstream=True)
        yield Place(server.url, server.pid)


@contextlib.contextmanager
def connect(address: str) -> Iterator[RedisStream]:
    """A client of the server there."""
    queue = RedisStream(address)
    try:
        yield queue
    finally:
        queue.client.close()
