"""Linger: how long a commit waits for further records.  Pure: the caller has the clock.

In the cloud each commit costs money, and a few large commits cost less than many small ones.  Under heavy traffic a
short wait collects enough; as traffic falls the wait grows, so that a quiet day does not pay for as many commits as a
busy one.  The longest wait bounds how late a record can be.  A sender that waits for an acknowledgement sends nothing
meanwhile, so its batch waits only for the shortest time.
"""

from __future__ import annotations

from tailrace.errors import BadSetting

WORTHWHILE_COMMIT_BYTES = 512 * 1024
"""Bytes of a commit that is worth its price: a GiB in such commits costs a few cents."""


class Linger:
    """A wait whose length adapts to the traffic, between two bounds."""

    __slots__ = ("_last", "longest", "seconds", "shortest")

    def __init__(self, shortest: float = 0.0, longest: float | None = None) -> None:
        if shortest < 0:
            raise BadSetting(f"a producer's linger is at least 0 seconds, not {shortest}")
        self.seconds = self.shortest = shortest
        self.longest = shortest if longest is None else longest
        self._last: float | None = None

    @classmethod
    def of(cls, seconds: float | None, *, local: bool) -> Linger:
        """The user's choice; by default no wait on a disk, and between 0.1 and 1 s in the cloud."""
        if seconds is not None:
            return cls(seconds)
        return cls() if local else cls(0.1, 1.0)

    def left(self, age: float, *, waited: bool) -> float:
        """How many more seconds records of this age wait; 0: commit them.  `waited`: whether a sender waits for
        them."""
        return max(0.0, (self.shortest if waited else self.seconds) - age)

    def gathered(self, size: int, now: float) -> None:
        """Learn from a commit: the next wait is as long as it takes to collect a worthwhile commit at this rate."""
        if self._last is not None and size:
            self.seconds = min(max(WORTHWHILE_COMMIT_BYTES * (now - self._last) / size, self.shortest), self.longest)
        self._last = now
