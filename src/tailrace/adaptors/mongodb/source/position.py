"""The position of a follower: a place in the change stream, and whose it is.

token     the resume token: after this event, or after this moment of the oplog; none yet: from `time` on
time      the moment of the oplog that the position stands at, [seconds, count]
set       the id of the replica set, "" where the user may not ask for it
anchor    the token of the last change that was seen: if the oplog lacks it, this is not the oplog that was read
ordinal   how many changes of the moment `last` were given
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.adaptors.mongodb.deployment import NEVER, OperationTime

TIMESTAMP = 0x82
"""What a resume token's first value is: a timestamp."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the change stream."""

    time: OperationTime
    set: str = ""
    token: str = ""
    anchor: str = ""
    last: OperationTime = NEVER
    ordinal: int = 0

    def stored(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "token": self.token, "time": list(self.time), "set": self.set, "anchor": self.anchor,
            "last": list(self.last), "ordinal": self.ordinal,
        }  # fmt: skip

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Point:
        """From what is stored."""
        return cls(
            OperationTime(*stored["time"]), stored["set"], stored["token"], stored["anchor"],
            OperationTime(*stored["last"]), stored["ordinal"],
        )  # fmt: skip


def time_of(token: str) -> OperationTime | None:
    """The moment that a resume token stands at, which its first nine bytes have; None if it is of another form."""
    data = bytes.fromhex(token[:18])
    if len(data) < 9 or data[0] != TIMESTAMP:
        return None
    return OperationTime(int.from_bytes(data[1:5]), int.from_bytes(data[5:9]))
