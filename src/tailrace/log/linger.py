"""Linger: how long a commit waits for company.  Pure: the caller has the clock.

In the cloud each commit is paid for, and a few larger ones cost less than many small ones.  Waiting longer pays while
records keep coming; it only delays those who send one and wait for it.  So the wait doubles as long as records came in
its second half too, up to the longest, and halves when none did, down to the shortest.
"""

from __future__ import annotations

from tailrace.errors import BadSetting


class Linger:
    """A wait in seconds that finds its length between two bounds."""

    __slots__ = ("_halfway", "longest", "seconds", "shortest")

    def __init__(self, shortest: float = 0.0, longest: float | None = None) -> None:
        if shortest < 0:
            raise BadSetting(f"a producer's linger is at least 0 seconds, not {shortest}")
        self.seconds = self.shortest = shortest
        self.longest = shortest if longest is None else longest
        self._halfway: int | None = None

    @classmethod
    def of(cls, seconds: float | None, *, local: bool) -> Linger:
        """As the user says; else none on a disk, and between 0.1 and 1 s in the cloud."""
        if seconds is not None:
            return cls(seconds)
        return cls() if local else cls(0.1, 1.0)

    def left(self, age: float, count: int) -> float:
        """Seconds until to look again at records of this age, of which there are so many by now; 0: commit them."""
        if age < self.seconds / 2:
            return self.seconds / 2 - age
        if self._halfway is None:
            self._halfway = count
        if age < self.seconds:
            return self.seconds - age
        longer = count > self._halfway
        self.seconds = min(self.seconds * 2, self.longest) if longer else max(self.seconds / 2, self.shortest)
        self.begin()
        return 0.0

    def begin(self) -> None:
        """The next records are others."""
        self._halfway = None
