"""Pace: requests no faster than so many capacity units a second, by what DynamoDB says each has used."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


class Pace:
    """Waits after a request for as long as its units are to last.  With 0 units it never waits."""

    def __init__(
        self,
        units: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._units, self._clock, self._sleep = units, clock, sleep
        self._free = clock()
        """When all that was used so far is paid for."""

    def used(self, *consumed: Mapping[str, Any]) -> None:
        """Requests have used this, as DynamoDB says it in `ConsumedCapacity`."""
        if not self._units:
            return
        total = sum(float(one.get("CapacityUnits") or 0) for one in consumed)
        self._free = max(self._free, self._clock() - 1.0) + total / self._units
        if (wait := self._free - self._clock()) > 0:
            self._sleep(wait)
