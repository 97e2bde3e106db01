"""Explore: tries every schedule of a small scenario, breadth first, so that the first violation found is a shortest
one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.testing.fingerprint import fingerprint
from tailrace.testing.schedules import Scenario, made
from tailrace.testing.simulation import Move, Simulation, Violation

FAULTS = {"timeout": 1, "torn": 1, "crash": 1}


class Exploration(NamedTuple):
    """The result.  `complete`: every state was seen.  `moves` lead to the violation, if there is one."""

    states: int
    complete: bool
    violation: Violation | None
    moves: tuple[Move, ...]


def explore(
    scenario: Scenario, faults: Mapping[str, int] = FAULTS, *, states: int = 100_000, depth: int = 60, **settings: Any
) -> Exploration:
    """Try every schedule with at most these faults, up to a number of states and of moves.

    A life cannot be copied, so this reaches a state again by making its moves again.  Two states are the same when
    storage, `ghosts`, late requests and every life's variables are.  Times are left out, so a protocol that decides by
    the clock is explored only in part.  Schedules are not run to a fair end: `check_schedules` finds livelocks.
    """
    seen: set[int] = set()
    queue: deque[tuple[Move, ...]] = deque([()])
    whole = True
    while queue and len(seen) < states:
        path = queue.popleft()
        moves = _reach(scenario, faults, path, settings).moves()
        whole = whole and (len(path) < depth or not moves)
        for move in moves if len(path) < depth else ():
            sim = _reach(scenario, faults, path, settings)
            try:
                sim.apply(move)
            except Violation as violation:
                return Exploration(len(seen), False, violation, (*path, move))
            if (state := fingerprint(sim)) not in seen:
                seen.add(state)
                queue.append((*path, move))
    return Exploration(len(seen), whole and not queue, None, ())


def _reach(scenario: Scenario, faults: Mapping[str, int], path: Sequence[Move], settings: dict[str, Any]) -> Simulation:
    sim = made(0, settings)
    scenario(sim)
    sim.budget = {**dict.fromkeys(sim.budget, 0), **faults}
    checks, sim.check = sim.check, []
    for move in path:
        sim.apply(move)
    sim.check = checks
    return sim
