"""Faults: a plan of the calls that fail in simulated storage, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

from tailrace.errors import BadSetting, TailraceError, Throttled, TimedOut

KINDS = ("throttled", "conflicting", "unread", "landed", "lost", "late")


class Faults:
    """How often calls fail, as probabilities; the same seed gives the same faults to the same calls.

    `throttled`: refused.  `conflicting`: a write refused because a transaction is in the way.  `unread`: a read without
    an answer.  Writes without an answer: `landed`, `lost` (never happens), `late` (happens after 1 to `delay` more
    calls, perhaps after the caller has looked).
    """

    def __init__(self, seed: int = 0, *, delay: int = 10, **probability: float) -> None:
        for name in probability:
            if name not in KINDS:
                raise BadSetting.unknown("Faults", name, KINDS)
        self.probability: Mapping[str, float] = probability
        self.counts = dict.fromkeys(KINDS, 0)
        """How often each fault has happened."""
        self._rng, self._delay = random.Random(seed), delay
        self._late: list[tuple[int, Callable[[], object]]] = []

    def read(self) -> None:
        """Raise the fault of the read that comes next, if it has one."""
        self._pass()
        if self._drawn("throttled"):
            raise Throttled("simulated: too many requests; nothing happened, ask again")
        if self._drawn("unread"):
            raise TimedOut("simulated: a read had no answer; ask again")

    def write(self, land: Callable[[], object]) -> None:
        """Raise the fault of the write that comes next, if it has one; `land` carries the write out, and the fault
        calls it now, later or never.  If this returns, the caller carries the write out."""
        self._pass()
        if self._drawn("throttled"):
            raise Throttled("simulated: too many requests; nothing happened, ask again")
        if self._drawn("conflicting"):
            raise Throttled("simulated: a transaction is in the way; nothing happened, ask again")
        for kind in ("landed", "lost", "late"):
            if self._drawn(kind):
                self._send(kind, land)
                raise TimedOut("simulated: sent, no answer; it may have happened, or may happen yet")

    def settle(self) -> None:
        """Let all late writes land now."""
        late, self._late = self._late, []
        for _, land in late:
            self._land(land)

    def _drawn(self, kind: str) -> bool:
        hit = self.probability.get(kind, 0.0) > 0 and self._rng.random() < self.probability[kind]
        self.counts[kind] += hit
        return hit

    def _send(self, kind: str, land: Callable[[], object]) -> None:
        if kind == "landed":
            self._land(land)
        elif kind == "late":
            self._late.append((self._rng.randint(1, self._delay), land))

    def _pass(self) -> None:
        due = [land for left, land in self._late if left <= 1]
        self._late = [(left - 1, land) for left, land in self._late if left > 1]
        for land in due:
            self._land(land)

    @staticmethod
    def _land(land: Callable[[], object]) -> None:
        with suppress(TailraceError):  # nobody gets its answer, not even an error
            land()
