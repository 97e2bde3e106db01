"""A clock that stands still until it is moved by hand."""

from __future__ import annotations


class ManualClock:
    """Both clocks of a process.  `clock.monotonic` and `clock.move` stand in for `time.monotonic` and `time.sleep`."""

    __slots__ = ("_monotonic", "_wall")

    def __init__(self, monotonic: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic, self._wall = monotonic, wall

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return self._monotonic

    def wall(self) -> float:
        """Seconds since 1970, as people see them; may be set back."""
        return self._wall

    def move(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards; `set_wall` can, by {-seconds} s")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Set the wall clock alone, forwards or back, as an operator or NTP does."""
        self._wall = wall
