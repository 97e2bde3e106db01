"""Items: what the queue keeps, and how a window of acknowledgements moves.  Small on purpose: one shard."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tests.model.items import Key

Message: TypeAlias = tuple[str, int]
"""(shard key, number): the numbers of one key rise in the log."""

SHARD: Key = ("shard", 0)
LOG: Key = ("log", 0)
EFFECT: Key = ("effect", 0)
DEAD: Key = ("dead", 0)
REPLAY: Key = ("replay", 0)
DEDUP: Key = ("dedup", 0)
CLOCK: Key = ("clock", 0)
"""Delayed messages that are due before this number come too late: they are pushed at once instead."""

WINDOW, BATCH, LIMIT, ISOLATE = 4, 3, 4, 2
"""The window's length, how many are emitted at a time, after how many attempts a message is dead, and after how many
take-overs a message is emitted alone."""


def delayed(number: int) -> Key:
    """Where a delayed message waits."""
    return "delayed", number


class Window(NamedTuple):
    """Which offsets are done: all below `position`, and those in `bits`.  All below `upto` were emitted in this epoch.

    `takes` has (upto, times): what was emitted and unacknowledged when an owner disappeared."""

    position: int = 0
    bits: frozenset[int] = frozenset()
    upto: int = 0
    attempts: tuple[tuple[int, int], ...] = ()
    takes: tuple[tuple[int, int], ...] = ()
    acked: int = 0
    dead: int = 0

    def done(self, offset: int) -> bool:
        """Whether an offset is acknowledged, or dead."""
        return offset < self.position or offset in self.bits

    def open(self) -> list[int]:
        """What was emitted in this epoch and is not done."""
        return [n for n in range(self.position, self.upto) if n not in self.bits]

    def taken_over(self, offset: int) -> int:
        """How often an owner disappeared that may have had this message in hand."""
        return sum(times for upto, times in self.takes if offset < upto)

    def tried(self, offset: int) -> int:
        """How many attempts this message has had."""
        return dict(self.attempts).get(offset, 0) + self.taken_over(offset)

    def finish(self, offset: int, dead: bool = False) -> Window:
        """Acknowledge one offset; the position moves over all that is done."""
        if self.done(offset):
            return self
        bits, position = self.bits | {offset}, self.position
        while position in bits:
            bits, position = bits - {position}, position + 1
        return self._replace(
            position=position,
            bits=bits,
            attempts=tuple((n, k) for n, k in self.attempts if n != offset),
            takes=tuple((upto, k) for upto, k in self.takes if upto > position),
            acked=self.acked + (not dead),
            dead=self.dead + dead,
        )

    def fail(self, offset: int) -> Window:
        """Count one more attempt."""
        attempts = dict(self.attempts)
        attempts[offset] = attempts.get(offset, 0) + 1
        return self._replace(attempts=tuple(sorted(attempts.items())))

    def begin(self) -> Window:
        """The first write of an owner: what the owner before it left open has had one more attempt."""
        left = self.open()
        takes = (*self.takes, (self.upto, 1)) if left else self.takes
        return self._replace(takes=takes, upto=self.position)

    def emit(self, end: int, alone: bool = True) -> Window:
        """Emit some more, up to the window's end; a message that owners died of comes alone."""
        upto, stop = self.upto, min(end, self.position + WINDOW)
        given = 0
        while upto < stop and given < BATCH:
            if not self.done(upto):
                if alone and self.taken_over(upto) >= ISOLATE:
                    if not given and not self.open():
                        upto += 1
                    break
                given += 1
            upto += 1
        return self._replace(upto=upto)


class Shard(NamedTuple):
    """A group's item of one partition, with the queue's window; `v` rises with every write of the window."""

    owner: str | None = None
    epoch: int = 0
    v: int = 0
    window: Window = Window()
    paused: int = 0
    """Rises each time the queue is paused, and each time it goes on: odd while it is paused."""


class Replay(NamedTuple):
    """A range to be delivered again, and how far that has come; fenced by the shard's lease."""

    v: int
    window: Window
    until: int
