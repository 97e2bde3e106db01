"""Mutants: the event store with one rule taken away.  Each must be caught by some schedule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tailrace.coordination.guard import Outcome, Refused
from tailrace.coordination.rules import without
from tailrace.events import append, loading, pruning, reading, stored, tip
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item

Mutant = Callable[[], AbstractContextManager[Any]]
_landed, _raise_floor = append._Attempts._landed, pruning.raise_floor


def _unrecognised(self: Any, outcome: Outcome, actions: Any) -> Steps[bool]:
    """The refusal of a transaction is not known for a conflict."""
    if isinstance(outcome, Refused) and len(actions) > len(self.parts):
        raise RuntimeError("TransactionCanceledException")
    return (yield from _landed(self, outcome, actions))


def _never(self: Any, starts: Any) -> Steps[bool]:
    return False
    yield


def _no_floor(stream: str, floor: int) -> Steps[None]:
    return
    yield


def _no_bridge(stream: str, low: int, high: int) -> Steps[list[Item]]:
    return []
    yield


def _patched(target: Any, name: str, new: Any) -> Mutant:
    return lambda: patch.object(target, name, new)


MUTANTS: dict[str, tuple[Mutant, str]] = {
    "no etag in the condition": (lambda: without("events.etag"), "roll"),
    "neither n nor etag": (lambda: without("events.n", "events.etag"), "append"),
    "a calve's conflict not recognised": (_patched(append._Attempts, "_landed", _unrecognised), "append"),
    "unfold index off by one": (
        _patched(tip, "at_version", lambda unfold, version: stored.at_version(unfold, version + 1)),
        "decide",
    ),
    "an own write not recognised": (_patched(append._Attempts, "_is_stored", _never), "append"),
    "unfolds in doubt written again": (
        _patched(append._Attempts, "_give_up_if_gone", lambda self, stands: None),
        "roll",
    ),
    "the floor not raised before": (_patched(pruning, "raise_floor", _no_floor), "append"),
    "what is hidden taken for pruned": (_patched(reading, "bridge", _no_bridge), "append pair"),
    "a cache that folds from one too late": (
        _patched(loading.Loading, "_decoded", lambda self, events: [self.codec.decode("", e) for e in events[1:]]),
        "decide",
    ),
}
