"""Patience: for how long the engine repeats a request that the service throttles or does not answer."""

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
"""Errors after which it is certain that nothing happened."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to repeat a request, with the clock, the sleep and the randomness to use."""

    seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def ask(self, request: Callable[[], T], what: str, on: tuple[type[Exception], ...] = (*NOT_DONE, TimedOut)) -> T:
        """Make a request, and repeat it with pauses while it fails with one of `on`; `Unavailable` when patience runs
        out."""
        began, attempt = self.clock(), 0
        while True:
            try:
                return request()
            except on as error:
                if self.clock() - began >= self.seconds:
                    raise Unavailable(
                        f"{what} has not taken a request for {self.seconds:.0f} s ({error}); it stands where it was, "
                        "and can be asked again"
                    ) from error
                self.sleep(backoff(attempt, self.rng, base=0.05))
                attempt += 1
