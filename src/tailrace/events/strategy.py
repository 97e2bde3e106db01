"""Access strategies: where loading a stream may begin, and what is written with (or instead of) the events.

Loading goes backwards through events and unfolds to an *origin*, from which the state can be folded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Strategy(Generic[E, S]):
    """How a stream is loaded and written.

    `is_origin` says whether everything before an event can be ignored (None: nothing can).  `unfolds` says
    whether unfolds are looked at.  `transmute` turns the new events and the state after them into the events and
    unfolds to write."""

    is_origin: Callable[[E], bool] | None
    unfolds: bool
    transmute: Callable[[list[E], S], tuple[list[E], list[E]]]


def unoptimized() -> Strategy[E, S]:
    """Every event is read and folded."""
    return Strategy(None, False, _as_they_are)


def latest_known_event() -> Strategy[E, S]:
    """The newest event is the whole state; no other is read."""
    return Strategy(_any, False, _as_they_are)


def snapshot(is_origin: Callable[[E], bool], to_snapshot: Callable[[S], E]) -> Strategy[E, S]:
    """Each write keeps a snapshot of the state in the Tip, so loading reads one item whatever the stream's length."""
    return Strategy(is_origin, True, lambda events, state: (events, [to_snapshot(state)]))


def multi_snapshot(is_origin: Callable[[E], bool], to_snapshots: Callable[[S], list[E]]) -> Strategy[E, S]:
    """Several snapshots at the same time, for example of several versions of a program."""
    return Strategy(is_origin, True, lambda events, state: (events, to_snapshots(state)))


def rolling_state(to_snapshot: Callable[[S], E]) -> Strategy[E, S]:
    """No events are kept at all, only the newest state."""
    return Strategy(_any, True, lambda events, state: ([], [to_snapshot(state)]))


def custom(
    is_origin: Callable[[E], bool], transmute: Callable[[list[E], S], tuple[list[E], list[E]]]
) -> Strategy[E, S]:
    """Events and unfolds as your own function makes them."""
    return Strategy(is_origin, True, transmute)


def _any(event: object) -> bool:
    return True


def _as_they_are(events: list[E], state: object) -> tuple[list[E], list[E]]:
    return events, []
