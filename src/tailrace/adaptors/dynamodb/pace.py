"""Pace: limits requests to a number of capacity units a second, by the units that DynamoDB reports for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


class Pace:
    """Sleeps after a request for as long as its capacity units must last.  With 0 units it never sleeps."""

    def __init__(
        self,
        units: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._units, self._clock, self._sleep = units, clock, sleep
        self._free = clock()
        """The time by which the units that were used so far are within the limit."""

    def used(self, *consumed: Mapping[str, Any]) -> None:
        """Count the `ConsumedCapacity` of requests, and sleep as long as they exceed the limit."""
        if not self._units:
            return
        total = sum(float(one.get("CapacityUnits") or 0) for one in consumed)
        self._free = max(self._free, self._clock() - 1.0) + total / self._units
        if (wait := self._free - self._clock()) > 0:
            self._sleep(wait)
