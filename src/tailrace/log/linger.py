"""Linger: how long a commit waits for company.  Pure: the caller has the clock.

In the cloud each commit is paid for, and a few larger ones cost less than many small ones.  Where much is sent, a short
wait gathers a good commit; as traffic falls the wait grows, so that a day of few records is not a day of as many
commits.  It ends at the longest, however little comes: that bounds how late a record is.  Who waits for a record's
acknowledgement sends nothing meanwhile, so a commit that somebody waits for waits for the shortest only.
"""

from __future__ import annotations

from tailrace.errors import BadSetting

GOOD = 512 * 1024
"""Bytes of a commit that is worth its price: a GiB in such ones costs some cents."""


class Linger:
    """A wait in seconds that finds its length between two bounds."""

    __slots__ = ("_last", "longest", "seconds", "shortest")

    def __init__(self, shortest: float = 0.0, longest: float | None = None) -> None:
        if shortest < 0:
            raise BadSetting(f"a producer's linger is at least 0 seconds, not {shortest}")
        self.seconds = self.shortest = shortest
        self.longest = shortest if longest is None else longest
        self._last: float | None = None

    @classmethod
    def of(cls, seconds: float | None, *, local: bool) -> Linger:
        """As the user says; else none on a disk, and between 0.1 and 1 s in the cloud."""
        if seconds is not None:
            return cls(seconds)
        return cls() if local else cls(0.1, 1.0)

    def left(self, age: float, *, waited: bool) -> float:
        """Seconds that records of this age still wait, if somebody waits for them, or nobody; 0: commit them."""
        return max(0.0, (self.shortest if waited else self.seconds) - age)

    def gathered(self, size: int, now: float) -> None:
        """So many bytes have come since the last time: the next wait is as long as a good commit takes to come."""
        if self._last is not None and size:
            self.seconds = min(max(GOOD * (now - self._last) / size, self.shortest), self.longest)
        self._last = now
