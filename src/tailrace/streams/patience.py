"""Patience: a service that throttles or does not answer is asked again, for a while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tailrace.errors import Throttled, TimedOut, Unavailable
from tailrace.storage.calls import backoff

T = TypeVar("T")

NOT_DONE = (Throttled, Unavailable)
"""Refusals that say for certain that nothing happened."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to ask again, and the clock, sleep and randomness that it goes by."""

    seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def ask(self, request: Callable[[], T], what: str, on: tuple[type[Exception], ...] = (*NOT_DONE, TimedOut)) -> T:
        """Make a request, again with pauses while the answer is one of `on`; `Unavailable` when patience is over."""
        began, attempt = self.clock(), 0
        while True:
            try:
                return request()
            except on as error:
                if self.clock() - began >= self.seconds:
                    raise Unavailable(
                        f"{what} has not answered for {self.seconds:.0f} s ({error}); it stands where it was, and can "
                        "be asked again"
                    ) from error
                self.sleep(backoff(attempt, self.rng, base=0.05))
                attempt += 1
