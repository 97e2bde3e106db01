"""The follower of a stream, or of a partition of a super stream: reads each message exactly once, by offset.

    {"start": "first"}                  nothing was read yet
    {"next": offset, "seen": mark}      the next offset, and a hash of the message before it, "" if it was not read

A stream that was deleted and made again, or restored, may have the same offsets with other messages.  So the follower
begins at the last message that was read: it must still be the same, unless retention has removed it.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Generator, Mapping
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.formats.decoder import decoder
from tailrace.adaptors.rabbitmq.broker import Broker
from tailrace.adaptors.rabbitmq.settings import RabbitSource
from tailrace.adaptors.rabbitmq.source.delivery import Delivery, reading
from tailrace.adaptors.rabbitmq.source.queue_follower import BEAT_SECONDS, METADATA
from tailrace.adaptors.rabbitmq.source.stream_client import Ended, StreamClient
from tailrace.adaptors.rabbitmq.source.stream_message import content_of
from tailrace.errors import BadInput, PositionLost, Unavailable

_log = logging.getLogger("tailrace")
FIRST_SECONDS = 10.0
"""How long the follower waits for the first message before it says that the broker does not give it."""
AFRESH = (
    "The pipeline never goes on behind a gap by itself: give it another name, and it begins afresh, from where start "
    "says"
)


def mark(data: bytes) -> str:
    """The mark of a message: a hash of its bytes."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class StreamFollower:
    """Follows one stream.  `part` is its number in its super stream, -1 for a stream of its own."""

    def __init__(
        self, broker: Broker, settings: RabbitSource, port: int, stream: str, namespace: str, part: int,
        stored: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._broker, self._settings, self._port = broker, settings, port
        self._stream, self._namespace, self._part = stream, namespace, part
        self._position = {name: value for name, value in stored.items() if name != "more"}
        self._decoder = decoder(settings, METADATA)
        self._read = reading(settings.key, settings.format)
        self._client: StreamClient | None = None
        self._end = self._signs = 0
        self._verified = False

    def changes(self) -> Generator[Changes]:
        """The stream's messages as changes, without end; about once a second when nothing comes.  `PositionLost` if the
        stream no longer has what came after the position."""
        try:
            self._client = StreamClient(self._broker, self._port)
            if not self._client.exists(self._stream):
                yield from self._gone()
            self._end = end_of(self._client, self._broker, self._stream)[0]
            self._subscribe()
            while True:
                yield self._step()
        finally:
            self.close()

    def _subscribe(self) -> None:
        assert self._client is not None
        at = self._position.get("next")
        if at is None:
            self._client.subscribe(self._stream, "first")
        else:
            self._check_end()
            self._client.subscribe(self._stream, "offset", max(0, at - 1))
        self._verified = not at
        self._deadline = time.monotonic() + FIRST_SECONDS

    def _check_end(self) -> None:
        if self._end < self._position["next"]:
            raise self._lost(f"it ends at offset {self._end}, before the pipeline's {self._position['next']}")

    def _step(self) -> Changes:
        assert self._client is not None
        chunk = self._client.chunk(BEAT_SECONDS)
        if isinstance(chunk, Ended):
            raise Unavailable(f"{self._broker.address} has ended reading {self._where}")
        rows: list[pa.RecordBatch] = []
        if chunk is not None:
            rows = self._rows(chunk)
        elif not self._verified and time.monotonic() > self._deadline:
            raise Unavailable(  # the stream has this message or later ones, so it has something to give
                f"{self._broker.address} does not give the messages of {self._where} from offset "
                f"{self._position['next'] - 1} on"
            )
        caught_up = self._verified and self._position.get("next", 0) >= self._end
        position = dict(self._position)
        if not caught_up:
            self._signs += 1
            position["more"] = self._signs
        return Changes(rows, position, chunk.timestamp if rows and chunk else 0, caught_up=caught_up and not rows)

    def _rows(self, chunk: Any) -> list[pa.RecordBatch]:
        """The rows of the new messages of a chunk, which may begin before the position."""
        try:
            found = list(enumerate(chunk.get_messages(), chunk.chunk_first_offset))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"the chunk at offset {chunk.chunk_first_offset} of {self._where} cannot be read: it is compressed "
                f"otherwise than with gzip, or damaged ({type(error).__name__})"
            ) from None
        if not self._verified:
            self._verify(found)
        new = [(offset, data) for offset, data in found if offset >= self._position.get("next", 0)]
        if not new:
            return []
        messages = [self._delivery(offset, data, chunk.timestamp) for offset, data in new]
        offset, data = new[-1]
        self._position = {"next": offset + 1, "seen": mark(data)}
        return self._decoder.rows(self._namespace, messages, 2 if self._part >= 0 else 1)

    def _delivery(self, offset: int, data: bytes, stamp: int) -> Delivery:
        content = content_of(data)
        return Delivery(
            content.body, offset, self._where, content.headers, content.milliseconds or stamp, content.message_id,
            content.correlation_id, content.routing_key, max(0, self._part), self._read,
        )  # fmt: skip

    # -- what was read before
    def _verify(self, found: list[tuple[int, bytes]]) -> None:
        """Raise `PositionLost` if the message before the position is not the one that was read."""
        before, first = self._position["next"] - 1, found[0][0]
        if first > before + 1:
            raise self._lost(f"it begins at offset {first} now, and the pipeline was at {before + 1}")
        data = dict(found).get(before)
        if data is not None and self._position["seen"] not in ("", mark(data)):
            raise self._lost(f"the message at offset {before} is another than the one that was read")
        self._verified = data is not None or first > before

    def _lost(self, why: str) -> PositionLost:
        return PositionLost(
            f"{self._where} of {self._broker.address} no longer has what came after the pipeline's position: {why}. "
            f"Its retention removed messages, or it was deleted and made again, or restored. {AFRESH}"
        )

    @property
    def _where(self) -> str:
        return f"the stream {self._stream}"

    def _gone(self) -> Generator[Changes]:
        """Report that the stream was deleted, and wait until there is one of its name."""
        assert self._client is not None
        _log.warning("the stream %s at %s is deleted; it is followed no more", self._stream, self._broker.address)
        yield Changes([], self._position, caught_up=True, ended=[self._namespace] if self._part < 0 else [])
        while not self._client.exists(self._stream):
            time.sleep(BEAT_SECONDS)
            yield Changes([], self._position, caught_up=True)

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def end_of(client: StreamClient, broker: Broker, stream: str) -> tuple[int, str, int]:
    """The offset after the last message of a stream, that message's mark, and when its chunk was written; (0, "", 0)
    for an empty stream."""
    client.subscribe(stream, "last")
    deadline = time.monotonic() + FIRST_SECONDS
    last: Any = None
    while time.monotonic() < deadline:
        chunk = _chunk(client, broker, stream, 0.2 if last is None else 0.0)
        if chunk is not None:
            last = chunk
        elif last is not None:
            return last.chunk_first_offset + last.num_records, mark(last.get_messages()[-1]), last.timestamp
        elif not broker.depth(stream):
            return 0, "", 0
    raise Unavailable(f"{broker.address} does not give the last message of the stream {stream}")


def position_at(client: StreamClient, broker: Broker, stream: str, at: int | None) -> dict[str, Any]:
    """The position in a stream of the first chunk written at this time or later; after the last message if there is
    none, or no time is given."""
    end, seen, written = end_of(client, broker, stream)
    if at is None or not end or written < at:
        return {"next": end, "seen": seen}
    client.subscribe(stream, "timestamp", at)
    deadline = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < deadline:
        chunk = _chunk(client, broker, stream, 0.2)
        if chunk is not None and chunk.timestamp >= at:
            return {"next": chunk.chunk_first_offset, "seen": ""}
    raise Unavailable(f"{broker.address} does not give the messages of the stream {stream} from that moment on")


def _chunk(client: StreamClient, broker: Broker, stream: str, seconds: float) -> Any:
    chunk = client.chunk(seconds)
    if isinstance(chunk, Ended):
        raise Unavailable(f"{broker.address} has ended reading the stream {stream}")
    return chunk
