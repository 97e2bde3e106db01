"""Records: what a topic holds, and which partition a key belongs to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Literal, NamedTuple, TypeAlias

from tailrace.errors import BadRecord
from tailrace.log.murmur2 import POSITIVE, murmur2

try:  # OpenSSL's set-up costs more than hashing a short key
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # Python 3.11
    from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore]

Partitioner: TypeAlias = Literal["sha256", "murmur2"]
"""How a key's partition follows from the key: by its sha256 as a big-endian number, or as Kafka's producers do it, by
its murmur2; modulo the partition count."""

MAX_TIMESTAMP = 253_402_300_799_999
"""The last millisecond of the year 9999."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_CACHED_KEY_BYTES = 128
"""The partitions of keys up to this length are cached."""


class Mode(IntEnum):
    """The phase of a pipeline that a record comes from."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2


class Op(IntEnum):
    """What happened to the document that a record describes."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    COMMAND = 3
    NOOP = 4
    SKIP = 5


class Record(NamedTuple):
    """One record, as read.  `timestamp` is in milliseconds since 1970; a value of None marks its key as deleted."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    attributes: int = 0

    @property
    def mode(self) -> Mode:
        """The pipeline phase kept in the attributes."""
        return Mode(self.attributes & 3)

    @property
    def op(self) -> Op:
        """The operation kept in the attributes."""
        return Op(self.attributes >> 2)

    @property
    def time(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return EPOCH + timedelta(milliseconds=self.timestamp)


def attributes(mode: int = Mode.COPY, op: int = Op.INSERT) -> int:
    """The byte of a record that holds its mode, in bits 0-1, and its op, in bits 2-4."""
    try:
        return Mode(mode) | Op(op) << 2
    except ValueError:
        modes, ops = (", ".join(f"{one.value} {one.name.lower()}" for one in kind) for kind in (Mode, Op))
        raise BadRecord(f"a record's mode is one of {modes} and its op one of {ops}, not {mode!r} and {op!r}") from None


def partition_of(key: bytes, partitions: int, partitioner: Partitioner = "sha256") -> int:
    """The partition of a key in a topic with this partitioner."""
    if len(key) <= MAX_CACHED_KEY_BYTES:
        return _remembered(key, partitions, partitioner)
    return hashed((key,), partitions, partitioner)[0]


@functools.lru_cache(maxsize=65536)
def _remembered(key: bytes, partitions: int, partitioner: Partitioner) -> int:
    number = murmur2(key) & POSITIVE if partitioner == "murmur2" else int.from_bytes(sha256(key).digest(), "big")
    return number % partitions


def hashed(keys: Sequence[bytes], partitions: int, partitioner: Partitioner = "sha256") -> list[int]:
    """The partitions of many different keys."""
    if partitioner == "murmur2":
        return [(murmur2(key) & POSITIVE) % partitions for key in keys]
    if partitions & (partitions - 1):
        return [int.from_bytes(sha256(key).digest(), "big") % partitions for key in keys]
    mask = partitions - 1  # a power of two, at most 128: the last byte decides
    return [sha256(key).digest()[31] & mask for key in keys]


def milliseconds(when: int | datetime) -> int:
    """A record's timestamp as milliseconds since 1970; refuses times before 1970 or after the year 9999."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise BadRecord(f"the time {when} has no time zone; say when.replace(tzinfo=UTC) or .astimezone()")
        when = round((when - EPOCH) / timedelta(milliseconds=1))
    if isinstance(when, bool) or not isinstance(when, int):
        raise BadRecord(f"a timestamp is milliseconds since 1970 or a datetime, not a {type(when).__name__}")
    if not 0 <= when <= MAX_TIMESTAMP:
        raise BadRecord(f"the timestamp {when} is outside 1970 to 9999 (milliseconds since 1970)")
    return when


def check_bytes(what: str, data: Any) -> None:
    """Refuse a key or value that is neither bytes nor None."""
    if data is not None and not isinstance(data, bytes):
        hint = f"; encode it: {what}.encode()" if isinstance(data, str) else ""
        raise BadRecord(f"a record's {what} is bytes or None, not a {type(data).__name__}{hint}")


def header_pairs(headers: Any) -> tuple[tuple[str, bytes], ...]:
    """A copy of a record's headers; anything but names and bytes is refused."""
    try:
        pairs = tuple((name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers))
        "".join(name for name, _ in pairs).encode()
        b"".join(value for _, value in pairs)
    except (TypeError, ValueError):
        raise BadRecord(
            f"a record's headers are {{name: bytes}}, or pairs of a name and bytes, not {headers!r:.80}"
        ) from None
    return pairs
