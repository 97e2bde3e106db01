"""Turns: whether a batch may be finished in a sink that keeps offsets, or has been overtaken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.adaptors.contract import Who
from tailrace.errors import Fenced


def is_repeat(kept: tuple[int, Mapping[str, Any]], who: Who, offsets: Mapping[str, Any]) -> bool:
    """Whether this very batch is finished already.  `Fenced` if a newer run, or more of the same one, is."""
    epoch, before = kept
    if epoch > who.epoch:
        raise Fenced(f"another run of the writer {who.writer!r} has begun (epoch {epoch}); this one must stop")
    if epoch == who.epoch and any(_below(offsets.get(q), mark) for q, mark in before.items()):
        raise Fenced(f"the writer {who.writer!r} has finished more than this batch already; it must not go back")
    return epoch == who.epoch and dict(before) == dict(offsets)


def _below(new: Any, old: Any) -> bool:
    """Whether a mark is behind another anywhere; marks are numbers, or as a pipeline keeps them."""
    if new is None or isinstance(old, int):
        return new is None or new < old
    if new["low"] < old["low"]:
        return True
    return any(max(new["low"], new["ahead"].get(name, -1)) < at for name, at in old["ahead"].items())
