"""Pacing: how long a writer holds a few messages back, so that its sink gets fewer and larger batches."""

from __future__ import annotations

import time
from math import inf


class Pacing:
    """When a batch was finished last, and whether something is held back since."""

    def __init__(self) -> None:
        self.held = False
        self._last, self._hurried = -inf, False

    def finished(self) -> None:
        """A batch was finished now."""
        self._last = time.monotonic()

    def hurry(self) -> None:
        """Hold nothing back any more."""
        self._hurried = True

    def holds(self, seconds: float) -> bool:
        """Whether a little may wait, in a sink that wants so many seconds between two batches."""
        return not self._hurried and time.monotonic() - self._last < seconds
