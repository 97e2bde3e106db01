"""Redis Streams through redis-py and hiredis, 8 streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import redis
from tests.servers.redis import redis as redis_server

from benchmarks.contract import Pair, Place, timed_each
from benchmarks.load import PARTITIONS, Load

STREAMS = [f"bench-{partition}" for partition in range(PARTITIONS)]
PIPELINE = 2000
PAGE = 200


class RedisStreams:
    """XADD and XRANGE on one connection, a connection for each thread when there are more."""

    def __init__(self, address: str) -> None:
        self.client = redis.Redis.from_url(address)
        self.connection = self.client.connection_pool.get_connection()

    def append(self, load: Load) -> int:
        """XADD in pipelines of 2,000, the next one packed and sent while Redis works on the one before."""
        acknowledged = sent = 0
        for start in range(0, load.count, PIPELINE):
            waiting, sent = sent, self._send(load, start)
            acknowledged += self._answers(waiting)
        return acknowledged + self._answers(sent)

    def _send(self, load: Load, start: int) -> int:
        part = slice(start, start + PIPELINE)
        records = zip(load.places[part], load.keys[part], load.values[part], strict=True)
        commands = [("XADD", STREAMS[place], "*", key, value) for place, key, value in records]
        self.connection.send_packed_command(self.connection.pack_commands(commands))
        return len(commands)

    def _answers(self, count: int) -> int:
        # An error of Redis is raised here, so what comes back is the record's id.
        return len([self.connection.read_response() for _ in range(count)])

    def append_each(self, pairs: Sequence[Pair], at_once: int) -> list[float]:
        """An XADD for each record."""
        return timed_each(lambda key, value: self.client.xadd(STREAMS[0], {key: value}), pairs, at_once)

    def read(self) -> tuple[int, int]:
        """XRANGE by 200, the next page of all streams asked for in one pipeline."""
        records = size = 0
        for entries in self._pages():
            records += len(entries)
            size += sum([len(fields[1]) for _, fields in entries])
        return records, size

    def pairs(self) -> Iterable[Pair]:
        """The one field of every entry."""
        return ((fields[0], fields[1]) for entries in self._pages() for _, fields in entries)

    def _pages(self) -> Iterator[list[tuple[bytes, list[bytes]]]]:
        after = dict.fromkeys(STREAMS, b"-")
        while after:
            asked = [("XRANGE", stream, place, "+", "COUNT", PAGE) for stream, place in after.items()]
            self.connection.send_packed_command(self.connection.pack_commands(asked))
            for stream in list(after):
                entries = self.connection.read_response()
                if entries:
                    after[stream] = b"(" + entries[-1][0]
                    yield entries
                else:
                    del after[stream]

    def count(self) -> int:
        """XLEN of every stream."""
        return sum(self.client.xlen(stream) for stream in STREAMS)


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """Redis with appendfsync always."""
    with redis_server(folder) as server:
        yield Place(server.url, server.pid)


@contextlib.contextmanager
def connect(address: str) -> Iterator[RedisStreams]:
    """A client of the server there."""
    streams = RedisStreams(address)
    try:
        yield streams
    finally:
        streams.client.close()
