"""A small domain: a counter that is added to, and its snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.events import JsonCodec, custom, latest_known_event, multi_snapshot, rolling_state, snapshot, unoptimized


@dataclass(frozen=True)
class Added:
    by: int
    who: str = ""


@dataclass(frozen=True)
class Counted:
    total: int
    times: int


State = tuple[int, int]
ZERO: State = (0, 0)
CODEC: JsonCodec[Added | Counted] = JsonCodec(Added, Counted)


def fold(state: State, event: Added | Counted) -> State:
    if isinstance(event, Counted):
        return event.total, event.times
    return state[0] + event.by, state[1] + 1


def is_snapshot(event: object) -> bool:
    return isinstance(event, Counted)


def to_snapshot(state: State) -> Counted:
    return Counted(*state)


STRATEGIES = {
    "unoptimized": unoptimized(),
    "snapshot": snapshot(is_snapshot, to_snapshot),
    "multi": multi_snapshot(is_snapshot, lambda state: [Counted(0, 0), Counted(*state)]),
    "custom": custom(is_snapshot, lambda events, state: (events, [Counted(*state)] if state[1] % 2 else [])),
    "rolling": rolling_state(to_snapshot),
    "latest": latest_known_event(),
}
EXACT = ("unoptimized", "snapshot", "multi", "custom")
"""Those that can take turns on one stream: they keep every event, and need no other's unfolds."""
