"""Pacing: how long an outlet holds back a few messages, so that its sink gets fewer and larger batches."""

from __future__ import annotations

import time
from math import inf


class Pacing:
    """Knows when the last batch was finished, and whether messages are held back since."""

    def __init__(self) -> None:
        self.held = False
        self._last, self._hurried = -inf, False

    def finished(self) -> None:
        """Note that a batch was finished now."""
        self._last = time.monotonic()

    def hurry(self) -> None:
        """Hold back nothing from now on."""
        self._hurried = True

    def holds(self, seconds: float) -> bool:
        """Whether a small batch may wait, for a sink that wants `seconds` between two batches."""
        return not self._hurried and time.monotonic() - self._last < seconds
