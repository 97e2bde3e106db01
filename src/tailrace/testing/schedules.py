"""Schedules: many of them, and the shortest story of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tailrace.testing.simulation import Move, Simulation, Violation

Scenario: TypeAlias = Callable[[Simulation], None]
"""Prepares a simulation: what is stored, who acts, what must hold."""

_MANY = 99


def check_schedules(scenario: Scenario, seeds: Iterable[int], **settings: Any) -> int:
    """Run one schedule for each seed; a violation is shrunk, told and raised.  Gives the number of schedules.

    `settings` are those of `Simulation`, or `table=` and `objects=` as functions that make new ones."""
    done = 0
    for seed in seeds:
        sim, violation = one_schedule(scenario, seed, **settings)
        if violation is not None:
            moves = shrink(scenario, seed, [move for move, _, _ in sim.history], violation, **settings)
            sim, again = replay(scenario, seed, moves, **settings)
            raise Violation(violation.what, *violation.args[1:], f"seed {seed}\n{sim.story()}\n{again}") from violation
        done += 1
    return done


def one_schedule(scenario: Scenario, seed: int, **settings: Any) -> tuple[Simulation, Violation | None]:
    """A random phase, then a fair end."""
    sim = _made(seed, settings)
    try:
        scenario(sim)
        sim.run()
        sim.finish()
    except Violation as violation:
        return sim, violation
    return sim, None


def replay(
    scenario: Scenario, seed: int, moves: Sequence[Move], **settings: Any
) -> tuple[Simulation, Violation | None]:
    """Make these moves again, leaving out what is no longer possible; then a fair end."""
    sim = _made(seed, settings)
    try:
        scenario(sim)
        sim.budget = dict.fromkeys(sim.budget, _MANY)
        for move in moves:
            if sim.can(move):
                sim.apply(move)
        sim.finish()
    except Violation as violation:
        return sim, violation
    return sim, None


def shrink(scenario: Scenario, seed: int, moves: Sequence[Move], violation: Violation, **settings: Any) -> list[Move]:
    """Leave moves out, many at a time and then one by one, while the same violation remains."""
    kept, size = list(moves), max(1, len(moves) // 2)
    while size:
        at = 0
        while at < len(kept):
            less = kept[:at] + kept[at + size :]
            _, again = replay(scenario, seed, less, **settings)
            if again is not None and again.what == violation.what:
                kept = less
            else:
                at += size
        size //= 2
    return kept


def _made(seed: int, settings: dict[str, Any]) -> Simulation:
    made = {name: value() if name in ("table", "objects", "clock") else value for name, value in settings.items()}
    return Simulation(seed, **made)
