"""The window: which messages of a shard are done, and how many attempts the others have had.  Pure.

All offsets below `position` are done, and so are those whose bit is set.  All offsets below `upto` were emitted by the
present owner, so a handler may have had them.  When an owner disappears, the next owner notes in `takes` what was left
open: each of these messages has had one more attempt.  Names and rules are those of the model, tests/model/queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.coordination.rules import in_force

LENGTH = 4096
"""The window's reach: no message is emitted this far beyond the position, or farther."""
MOST_FAILING = 64
"""Failing messages whose attempts the window counts; once an owner has emitted so many that fail, it emits no more."""
MOST_TAKES = 64
"""Take-overs that a window remembers: those at the highest offsets."""
MOST_MARKS = 8
ISOLATE = 2
"""Owners that must have disappeared while they may have been handling a message before it is emitted alone, so that
only the message to blame is counted again.  A queue with few attempts isolates earlier."""


@dataclass(slots=True)
class Window:
    """The acknowledgements of one shard, and its counters."""

    position: int = 0
    bits: int = 0
    """Bit n: the offset `position` + n is done."""
    upto: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    takes: list[tuple[int, int]] = field(default_factory=list)
    """(upto, times): `times` owners disappeared that may have been handling every open message below `upto`."""
    emitted: int = 0
    acked: int = 0
    errored: int = 0
    dead: int = 0
    purged: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(ms, position): at this time every message below the position was done.  Only a few are kept, farther apart the
    older they are; `explain` reads them."""

    # -- stored
    @classmethod
    def of(cls, position: int, stored: Mapping[str, Any] | None) -> Window:
        """Decode a stored window.  If something else has moved the position since it was stored, only its counters and
        marks are kept."""
        if stored is None:
            return cls(position, upto=position)
        counters: dict[str, Any] = {name: stored[name] for name in ("emitted", "acked", "errored", "dead", "purged")}
        counters["marks"] = [(ms, position) for ms, position in stored.get("marks", ())]
        if stored["at"] != position:
            return cls(position, upto=position, **counters)
        return cls(
            position,
            int.from_bytes(stored["bits"], "little"),
            stored["upto"],
            {int(offset): n for offset, n in stored["attempts"].items()},
            [(upto, n) for upto, n in stored["takes"]],
            **counters,
        )

    def stored(self, v: int) -> dict[str, Any]:
        """Return the window as its shard's item stores it, as version `v`."""
        return {
            "v": v,
            "at": self.position,
            "bits": self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "little"),
            "upto": self.upto,
            "attempts": {str(offset): n for offset, n in self.attempts.items()},
            "takes": [list(take) for take in self.takes],
            "emitted": self.emitted,
            "acked": self.acked,
            "errored": self.errored,
            "dead": self.dead,
            "purged": self.purged,
            "marks": [list(mark) for mark in self.marks],
        }

    def copy(self) -> Window:
        """Return a copy, on which the owner plans its next write."""
        return replace(self, attempts=dict(self.attempts), takes=list(self.takes), marks=list(self.marks))

    # -- asking
    def is_done(self, offset: int) -> bool:
        """Whether the message at this offset is acknowledged, dead or purged."""
        return offset < self.position or bool(self.bits >> (offset - self.position) & 1)

    @property
    def done_ahead(self) -> int:
        """How many offsets beyond the position are done."""
        return self.bits.bit_count()

    @property
    def open(self) -> int:
        """How many messages this owner has emitted that are not done."""
        below = max(0, self.upto - self.position)
        return below - (self.bits & ((1 << below) - 1)).bit_count()

    def taken_over(self, offset: int) -> int:
        """How many owners disappeared that may have been handling this message."""
        return sum(times for upto, times in self.takes if offset < upto) if self.takes else 0

    def tried(self, offset: int) -> int:
        """How many attempts this message has had, by failures and by owners that disappeared."""
        return self.attempts.get(offset, 0) + self.taken_over(offset)

    # -- changing
    def begin(self) -> None:
        """Begin as a new owner: count one more attempt for every message that the previous owner left open."""
        if self.open and in_force("queue.takes"):
            times = 1 + sum(n for upto, n in self.takes if upto == self.upto)
            self.takes = sorted([*((u, n) for u, n in self.takes if u != self.upto), (self.upto, times)])[-MOST_TAKES:]
        self.upto = self.position

    def finish(self, offset: int, *, dead: bool = False) -> bool:
        """Mark a message as acknowledged or dead; returns False if it was done already.  Call `settle` after the last
        one."""
        if self.is_done(offset):
            return False
        self.bits |= 1 << (offset - self.position)
        self.attempts.pop(offset, None)
        self.acked += not dead
        self.dead += dead
        return True

    def skip(self, offset: int) -> None:
        """Mark a message as purged, because retention removed it or a quarantine passed over it."""
        if not self.is_done(offset):
            self.bits |= 1 << (offset - self.position)
            self.purged += 1

    def fail(self, offset: int, *, counts: bool = True) -> None:
        """Count a failed attempt of a message; with `counts=False` (a whole batch has failed) only the counter of
        errors rises."""
        self.errored += 1
        if not counts:
            return
        if offset in self.attempts or len(self.attempts) < MOST_FAILING:
            self.attempts[offset] = self.attempts.get(offset, 0) + 1

    def settle(self) -> None:
        """Move the position past all messages that are done."""
        through = (~self.bits & (self.bits + 1)).bit_length() - 1
        self.bits >>= through
        self.position += through
        self.upto = max(self.upto, self.position)
        self.takes = [(upto, n) for upto, n in self.takes if upto > self.position]

    def mark(self, now: int) -> None:
        """Note the time, in ms, if the position has moved since the last mark; of too many marks, drop the one that
        matters least."""
        marks = self.marks
        if self.position == (marks[-1][1] if marks else 0):
            return
        marks.append((now, self.position))
        if len(marks) > MOST_MARKS:
            ages = [max(1, now - at) for at, _ in marks]  # a mark of an owner whose clock is ahead has none
            gaps = [(marks[n + 1][0] - marks[n - 1][0]) / ages[n] for n in range(1, MOST_MARKS)]
            del marks[1 + gaps.index(min(gaps))]

    def emit(self, end: int, most: int, isolate: int = ISOLATE) -> Iterator[int]:
        """Emit up to `most` more messages before the offset `end`, and yield their offsets."""
        stop = min(end, self.position + LENGTH)
        if sum(offset < self.upto for offset in self.attempts) >= MOST_FAILING:
            return
        before = self.open
        while self.upto < stop and most > 0:
            offset = self.upto
            if not self.is_done(offset):
                alone = self.taken_over(offset) >= isolate and in_force("queue.isolation")
                if alone and before:
                    return
                before, most = before + 1, 0 if alone else most - 1
                self.emitted += 1
                self.upto += 1
                yield offset
            else:
                self.upto += 1

    def put_back(self, begun: int = 0) -> None:
        """Leave as the owner: the messages that it has emitted and no handler has begun go to the next owner without
        counting an attempt.  Those before the offset `begun` count one."""
        self.upto = max(self.position, min(self.upto, begun))
