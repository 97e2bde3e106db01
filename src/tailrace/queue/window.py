"""The window: which messages of a shard are done, and what is known of those that are not.  Pure.

All offsets below `position` are done, and so are those whose bit is set.  All offsets below `upto` were emitted by the
present owner, so a handler may have had them.  When an owner disappears, the next one notes in `takes` what was left
open: each of these messages has had one more attempt.  Names and rules are those of the model, tests/model/queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.coordination.rules import in_force

LENGTH = 4096
"""Nothing this far beyond the position is emitted."""
MOST_FAILING = 64
"""Failing messages whose attempts are counted; while there are so many, nothing new is emitted."""
MOST_TAKES = 64
MOST_MARKS = 8
ISOLATE = 2
"""A message that may have ended so many owners is emitted alone, so that only the one to blame is counted again; fewer
if so many would be its last attempt."""


@dataclass(slots=True)
class Window:
    """The acknowledgements of one shard, and its counters."""

    position: int = 0
    bits: int = 0
    """Bit n: the offset `position` + n is done."""
    upto: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    takes: list[tuple[int, int]] = field(default_factory=list)
    """(upto, times): how often an owner disappeared that may have been handling every open message below `upto`."""
    emitted: int = 0
    acked: int = 0
    errored: int = 0
    dead: int = 0
    purged: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    """(ms, position): by this time everything below was done.  A few, the older the further apart; for `explain`."""

    # -- stored
    @classmethod
    def of(cls, position: int, stored: Mapping[str, Any] | None) -> Window:
        """A stored one.  If something else moved the position meanwhile, only the counters are still true."""
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
        """As it is stored, in its shard's item."""
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
        """Another one like it, to plan the next write with."""
        return replace(self, attempts=dict(self.attempts), takes=list(self.takes), marks=list(self.marks))

    # -- asking
    def is_done(self, offset: int) -> bool:
        """Whether an offset is acknowledged, dead or purged."""
        return offset < self.position or bool(self.bits >> (offset - self.position) & 1)

    @property
    def done_ahead(self) -> int:
        """How many offsets beyond the position are done."""
        return self.bits.bit_count()

    @property
    def open(self) -> int:
        """How many messages were emitted by this owner and are not done."""
        below = max(0, self.upto - self.position)
        return below - (self.bits & ((1 << below) - 1)).bit_count()

    def taken_over(self, offset: int) -> int:
        """How many owners disappeared that may have had this message in hand."""
        return sum(times for upto, times in self.takes if offset < upto) if self.takes else 0

    def tried(self, offset: int) -> int:
        """How many attempts this message has had."""
        return self.attempts.get(offset, 0) + self.taken_over(offset)

    # -- changing
    def begin(self) -> None:
        """A new owner begins: what the one before left open has had one more attempt."""
        if self.open and in_force("queue.takes"):
            times = 1 + sum(n for upto, n in self.takes if upto == self.upto)
            self.takes = sorted([*((u, n) for u, n in self.takes if u != self.upto), (self.upto, times)])[-MOST_TAKES:]
        self.upto = self.position

    def finish(self, offset: int, *, dead: bool = False) -> bool:
        """A message is acknowledged, or dead; False if it was done already.  `settle` comes after the last of them."""
        if self.is_done(offset):
            return False
        self.bits |= 1 << (offset - self.position)
        self.attempts.pop(offset, None)
        self.acked += not dead
        self.dead += dead
        return True

    def skip(self, offset: int) -> None:
        """A message is gone: purged, or damaged and passed over."""
        if not self.is_done(offset):
            self.bits |= 1 << (offset - self.position)
            self.purged += 1

    def fail(self, offset: int, *, counts: bool = True) -> None:
        """An attempt has failed; that of a whole batch `counts` for none of its messages."""
        self.errored += 1
        if not counts:
            return
        if offset in self.attempts or len(self.attempts) < MOST_FAILING:
            self.attempts[offset] = self.attempts.get(offset, 0) + 1

    def settle(self) -> None:
        """Move the position over all that is done."""
        through = (~self.bits & (self.bits + 1)).bit_length() - 1
        self.bits >>= through
        self.position += through
        self.upto = max(self.upto, self.position)
        self.takes = [(upto, n) for upto, n in self.takes if upto > self.position]

    def mark(self, now: int) -> None:
        """Note the time, in ms, if the position has moved since the last mark; thin out what is old."""
        marks = self.marks
        if self.position == (marks[-1][1] if marks else 0):
            return
        marks.append((now, self.position))
        if len(marks) > MOST_MARKS:
            gaps = [(marks[n + 1][0] - marks[n - 1][0]) / (now - marks[n][0] + 1) for n in range(1, MOST_MARKS)]
            del marks[1 + gaps.index(min(gaps))]

    def emit(self, end: int, most: int, isolate: int = ISOLATE) -> Iterator[int]:
        """Emit up to `most` more messages before the offset `end`; gives their offsets."""
        stop = min(end, self.position + LENGTH)
        if len(self.attempts) >= MOST_FAILING:
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

    def put_back(self) -> None:
        """The owner leaves: what it has emitted and no handler has begun is free for the next, without an attempt."""
        self.upto = self.position
