"""Envelopes: a message with what is known of it, as a handler gets it; and how messages become bytes.

A message that is given as bytes is stored as it is.  Anything else goes through the queue's codec, and the record says
so in its attributes (op "command"), so that both can be in one queue.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.errors import BadInput
from tailrace.log.record import EPOCH, Op, attributes

if TYPE_CHECKING:
    from tailrace.queue.transaction import AckTransaction

RAW = attributes(op=Op.INSERT)
CODED = attributes(op=Op.COMMAND)
PUSHED = "pushed"
"""The header of a delayed message that says when it was pushed, in milliseconds."""
PUSHER = "pusher"
"""The header with the name of the program that pushed a message, if it gave one."""


class Codec(Protocol):
    """Turns messages into bytes and back.  Called from any thread."""

    def encode(self, message: Any) -> bytes:
        """A message as bytes."""

    def decode(self, data: bytes) -> Any:
        """The message again; whatever it raises makes the message a dead letter."""


class Json:
    """Messages as JSON, in UTF-8.  What JSON cannot say (NaN, infinity, sets, bytes inside an object) is refused."""

    def encode(self, message: Any) -> bytes:
        """A message as JSON."""
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def decode(self, data: bytes) -> Any:
        """What JSON says."""
        return json.loads(data)


def encoded(message: Any, codec: Codec) -> tuple[bytes, int]:
    """A message as it is stored, and the attributes that say how."""
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


def key_bytes(shard_key: str | bytes | None) -> bytes | None:
    """A shard key as it is stored."""
    if shard_key is None or isinstance(shard_key, bytes):
        return shard_key
    if isinstance(shard_key, str):
        try:
            return shard_key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BadInput(f"a shard key is text that UTF-8 can say, or bytes, not {shard_key!r:.80}") from None
    raise BadInput(f"a shard key is text or bytes, not a {type(shard_key).__name__}: str(…) makes it one")


class Acks(Protocol):
    """Takes the acknowledgements of envelopes."""

    def ack(self, envelope: Envelope) -> None:
        """It is done."""

    def retry(self, envelope: Envelope, after: float | None) -> None:
        """It is to be handed out again."""

    def dead(self, envelope: Envelope, reason: str) -> None:
        """It goes to the dead letters."""

    def transaction(self, envelope: Envelope) -> AckTransaction:
        """Writes that commit together with the acknowledgement of this envelope."""


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
        """`attempt` counts from 1.  `deadline` is when the handler must be done, by `time.monotonic()`; None: never."""
        self.shard: int = entry.partition
        self.offset: int = entry.offset
        self.replayed: bool = entry.replayed
        """Whether it is delivered again by a replay."""
        self.inserted: int = entry.inserted
        self.shard_key = None if entry.key is None else entry.key.decode("utf-8", "surrogateescape")
        self.settled = False
        """Whether it was acknowledged, retried or given up already."""

    def __repr__(self) -> str:
        return f"Envelope({self.queue!r}, shard={self.shard}, offset={self.offset}, attempt={self.attempt})"

    @property
    def insertion_time(self) -> datetime:
        """When it was pushed, by the pusher's clock."""
        return EPOCH + timedelta(milliseconds=self.inserted)

    def ack(self) -> None:
        """It is done: it will not be handed out again.  Durable soon after, together with others."""
        self._acks.ack(self)

    def retry(self, after: float | None = None) -> None:
        """Hand it out again, after so many seconds (default: the queue's backoff).  It counts as a failed attempt."""
        self._acks.retry(self, after)

    def dead(self, reason: str) -> None:
        """Put it with the dead letters, and do not try again."""
        self._acks.dead(self, reason)

    def transaction(self) -> AckTransaction:
        """Writes that commit together with the acknowledgement, or not at all: `with envelope.transaction() as t`."""
        return self._acks.transaction(self)
