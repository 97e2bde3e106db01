"""Envelopes: a message as a handler gets it, with what the queue knows about it; and the codecs that turn messages into
bytes.

A message that the caller gives as bytes is stored unchanged.  Any other message goes through the queue's codec, and its
record says so in its attributes (op "command"), so that one queue can hold both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.errors import BadInput
from tailrace.log.record import EPOCH, MAX_TIMESTAMP, Op, attributes

if TYPE_CHECKING:
    from tailrace.queue.transaction import AckTransaction

RAW = attributes(op=Op.INSERT)
CODED = attributes(op=Op.COMMAND)
PUSHED = "pushed"
"""The header of a delayed message with the time at which it was pushed, in milliseconds."""
PUSHER = "pusher"
"""The header with the name of the program that pushed a message, if it gave one."""


class Codec(Protocol):
    """Turns messages into bytes and back; the queue calls it from any thread."""

    def encode(self, message: Any) -> bytes:
        """Return the message as bytes."""

    def decode(self, data: bytes) -> Any:
        """Return the message that the bytes encode.  A message for which this raises becomes a dead letter."""


class Json:
    """Messages as JSON, in UTF-8; `encode` refuses what JSON cannot express (NaN, infinity, sets, bytes inside an
    object)."""

    def encode(self, message: Any) -> bytes:
        """Return the message as JSON."""
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        """Return the value that the JSON text describes."""
        return json.loads(data)


def encoded(message: Any, codec: Codec) -> tuple[bytes, int]:
    """Return a message's bytes, and the record attributes that say whether the codec made them; `BadInput` if the codec
    cannot encode it."""
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message), RAW
    try:
        data = codec.encode(message)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"the message, a {type(message).__name__}, cannot be encoded by {type(codec).__name__}: {error}; give "
            "bytes, or a codec that can: home.queue(name, codec=…)"
        ) from error
    if not isinstance(data, bytes):
        raise BadInput(f"{type(codec).__name__}.encode gave a {type(data).__name__}, not bytes")
    return data, CODED


def pushed_ms(timestamp: int, headers: Iterable[tuple[str, bytes]]) -> int:
    """When a message was pushed, in milliseconds.  The header of a delayed message says so; a header that is no such
    number is of a producer that writes into the queue's topic, and means something else."""
    for name, data in headers:
        if name == PUSHED and data.isdigit() and len(data) < 16 and int(data) <= MAX_TIMESTAMP:
            return int(data)
    return timestamp


def key_bytes(shard_key: str | bytes | None) -> bytes | None:
    """Return a shard key as the record stores it: text becomes UTF-8."""
    if shard_key is None or isinstance(shard_key, bytes):
        return shard_key
    if isinstance(shard_key, str):
        try:
            return shard_key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BadInput(f"a shard key is text that UTF-8 can say, or bytes, not {shard_key!r:.80}") from None
    raise BadInput(f"a shard key is text or bytes, not a {type(shard_key).__name__}: str(…) makes it one")


class Acks(Protocol):
    """Takes a handler's decisions on its envelopes; `Envelope` passes its calls on to it."""

    def ack(self, envelope: Envelope) -> None:
        """Acknowledge the envelope's message."""

    def retry(self, envelope: Envelope, after: float | None) -> None:
        """Count a failed attempt, and have the message handed out again after this many seconds (None: the queue's
        backoff)."""

    def dead(self, envelope: Envelope, reason: str) -> None:
        """Put the message with the dead letters."""

    def transaction(self, envelope: Envelope) -> AckTransaction:
        """Return a transaction that commits together with the acknowledgement of this envelope."""


class Envelope:
    """One message, as a handler gets it."""

    __slots__ = (
        "_acks", "attempt", "deadline", "entry", "inserted", "message", "offset", "queue", "replayed", "settled",
        "shard", "shard_key",
    )  # fmt: skip

    def __init__(
        self, acks: Acks, entry: Any, *, queue: str, message: Any, attempt: int, deadline: float | None = None
    ) -> None:
        self._acks, self.entry = acks, entry
        self.queue, self.message, self.attempt, self.deadline = queue, message, attempt, deadline
        """`attempt` counts from 1.  `deadline` is when the handler must have returned, by `time.monotonic()`; None: it
        has no limit."""
        self.shard: int = entry.partition
        self.offset: int = entry.offset
        self.replayed: bool = entry.replayed
        """Whether a replay delivers it again."""
        self.inserted: int = entry.inserted
        self.shard_key = None if entry.key is None else entry.key.decode("utf-8", "surrogateescape")
        self.settled = False
        """Whether the handler has already acknowledged it, asked for a retry or given it up."""

    def __repr__(self) -> str:
        return f"Envelope({self.queue!r}, shard={self.shard}, offset={self.offset}, attempt={self.attempt})"

    @property
    def insertion_time(self) -> datetime:
        """When the message was pushed, by the clock of the program that pushed it."""
        return EPOCH + timedelta(milliseconds=self.inserted)

    def ack(self) -> None:
        """Acknowledge the message, so that the queue hands it out to no consumer again.  Returns at once; the
        acknowledgement becomes durable with the consumer's next write."""
        self._acks.ack(self)

    def retry(self, after: float | None = None) -> None:
        """Have the message handed out again, after this many seconds (default: the queue's backoff).  Counts as a
        failed attempt."""
        self._acks.retry(self, after)

    def dead(self, reason: str) -> None:
        """Put the message with the dead letters; the queue does not try it again."""
        self._acks.dead(self, reason)

    def transaction(self) -> AckTransaction:
        """Return a transaction whose writes commit together with the acknowledgement, or not at all: `with
        envelope.transaction() as t`."""
        return self._acks.transaction(self)
