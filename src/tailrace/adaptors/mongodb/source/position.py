"""The position of a follower: a place in the change stream of one replica set.

token     the resume token, which names an event or a moment of the oplog; "" before the first: start at `time`
time      the moment of the oplog at the position, [seconds, count]
set       the id of the replica set; "" if the user may not ask for it
anchor    the token of the last change that was read: an oplog without it is not the oplog that was read
last      the moment of the last change of a document that was read
ordinal   the number of that change among the changes of its moment, from 0 on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.adaptors.mongodb.deployment import NEVER, OperationTime

TIMESTAMP = 0x82
"""The type of a resume token's first value: a timestamp."""


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
        """Return the position as JSON values, which the pipeline stores."""
        return {
            "token": self.token, "time": list(self.time), "set": self.set, "anchor": self.anchor,
            "last": list(self.last), "ordinal": self.ordinal,
        }  # fmt: skip

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Point:
        """Make a point from what a position stored of it."""
        return cls(
            OperationTime(*stored["time"]), stored["set"], stored["token"], stored["anchor"],
            OperationTime(*stored["last"]), stored["ordinal"],
        )  # fmt: skip


def time_of(token: str) -> OperationTime | None:
    """Return the moment of a change, from the first nine bytes of its resume token; None if the token has another
    form."""
    data = bytes.fromhex(token[:18])
    if len(data) < 9 or data[0] != TIMESTAMP:
        return None
    return OperationTime(int.from_bytes(data[1:5]), int.from_bytes(data[5:9]))
