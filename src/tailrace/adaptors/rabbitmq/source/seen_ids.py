"""Seen ids: the position in a queue, which is how many messages were taken, and marks of the last of them.

    {"n": how many, "recent": {bucket: marks}}

A queue has no offsets: when a process dies, the broker delivers again what was stored and not yet acknowledged.  So the
pipeline stores the marks of the last messages in the same write as the messages.  A mark is a hash of a message's id
and body, in base64; all marks have the same length.  They are in buckets, so that a write changes few of them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

MARK_BYTES = 12
MARK_CHARACTERS = MARK_BYTES // 3 * 4
BUCKET = 256
"""Messages in a bucket."""


def mark_of(message_id: str | bytes, body: bytes) -> str:
    """The mark of a message.  Two messages with the same id and different bodies have different marks.  The client
    gives an id as bytes if it is not UTF-8."""
    name = message_id if isinstance(message_id, bytes) else message_id.encode()
    digest = hashlib.blake2b(len(name).to_bytes(8, "big") + name + body, digest_size=MARK_BYTES).digest()
    return base64.b64encode(digest).decode()


class SeenIds:
    """How many messages were taken, and the marks of at least the last `size` of them."""

    def __init__(self, stored: Mapping[str, Any] | None, size: int) -> None:
        stored = stored or {"n": 0, "recent": {}}
        self.taken = int(stored["n"])
        self._buckets = -(-size // BUCKET)
        self._marks: dict[int, dict[str, None]] = {
            int(bucket): dict.fromkeys(_cut(marks)) for bucket, marks in stored["recent"].items()
        }

    def has(self, mark: str) -> bool:
        """Whether a message with this mark was taken recently."""
        return any(mark in marks for marks in self._marks.values())

    def take(self, mark: str | None) -> int:
        """Count a message, remember its mark, and return its number; a message without an id has no mark."""
        number = self.taken
        self.taken += 1
        if self._buckets and mark is not None:
            bucket = number // BUCKET
            self._marks.setdefault(bucket, {})[mark] = None
        for old in [one for one in self._marks if one < number // BUCKET - self._buckets]:
            del self._marks[old]
        return number

    def stored(self) -> dict[str, Any]:
        """The position as JSON holds it."""
        return {"n": self.taken, "recent": {str(bucket): "".join(marks) for bucket, marks in self._marks.items()}}


def _cut(marks: str) -> list[str]:
    return [marks[at : at + MARK_CHARACTERS] for at in range(0, len(marks), MARK_CHARACTERS)]
