"""Fencing: which run of a writer may still change a sink that keeps offsets with its data.

A sink keeps three values for each writer, in a form of its own, and changes them together with its data:

    epoch     the newest run that has begun
    offsets   what the last finished batch has reached; none before the first batch
    claimed   the epoch has begun, and the offsets are still those of the run before

Of two runs the one with the higher epoch wins; within a run, offsets only rise.  The writer reads its `Fence` under a
lock or a condition, asks the fence whether it may write, and stores the next fence in the same transaction as the
data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tailrace.adaptors.contract import Who
from tailrace.errors import Fenced


@dataclass(frozen=True, slots=True)
class Fence:
    """What a sink keeps for one writer.  `Fence()` is the fence of a writer for which the sink keeps nothing yet."""

    epoch: int = -1
    offsets: Mapping[str, Any] | None = None
    claimed: bool = False

    def admit(self, who: Who) -> None:
        """Raise `Fenced` if a newer run has begun."""
        if self.epoch > who.epoch:
            raise Fenced(f"another run of the writer {who.writer!r} has begun (epoch {self.epoch}); this one must stop")

    def is_repeat(self, who: Who, offsets: Mapping[str, Any]) -> bool:
        """Whether exactly this batch is finished already.  Raises `Fenced` if a newer run has begun, or if this run has
        finished more than this batch."""
        self.admit(who)
        if self.epoch < who.epoch or self.claimed:
            return False
        if any(_is_below(offsets.get(q), mark) for q, mark in (self.offsets or {}).items()):
            raise Fenced(f"the writer {who.writer!r} has finished more than this batch already; it must not go back")
        return self.offsets is not None and dict(self.offsets) == dict(offsets)

    def claim(self, who: Who) -> Fence | None:
        """Return the fence after this run has begun; None if it had begun before.  Raises `Fenced` if a newer run has
        begun."""
        self.admit(who)
        return replace(self, epoch=who.epoch, claimed=True) if who.epoch > self.epoch else None

    def finish(self, who: Who, offsets: Mapping[str, Any]) -> Fence:
        """Return the fence after a run has finished a batch with these offsets."""
        return Fence(who.epoch, offsets)

    def restored(self) -> Mapping[str, Any] | None:
        """What `Writer.restore` and `Writer.claim` return; None if the sink has no offsets."""
        return {"epoch": self.epoch, "offsets": self.offsets} if self.offsets is not None else None


def _is_below(new: Any, old: Any) -> bool:
    """Whether a new mark is behind an old one anywhere.  A mark is a number, or a dictionary with `low` and `ahead` as
    the pipeline keeps it."""
    if new is None or isinstance(old, int):
        return new is None or new < old
    if new["low"] < old["low"]:
        return True
    return any(max(new["low"], new["ahead"].get(name, -1)) < at for name, at in old["ahead"].items())
