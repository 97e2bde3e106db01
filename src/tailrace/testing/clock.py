"""ManualClock: a clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """The monotonic and the wall clock of a process.  `clock.monotonic` and `clock.move` stand in for `time.monotonic`
    and `time.sleep`."""

    __slots__ = ("_monotonic", "_wall")

    def __init__(self, monotonic: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic, self._wall = monotonic, wall

    def monotonic(self) -> float:
        """Return the seconds since some moment; they never go back."""
        return self._monotonic

    def wall(self) -> float:
        """Return the seconds since 1970; `set_wall` may set them back."""
        return self._wall

    def move(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards; `set_wall` can, by {-seconds} s")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Set the wall clock alone, forwards or back, as an operator or NTP does."""
        self._wall = wall
