"""Schedules: runs a scenario under many of them, and finds a short one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tailrace.testing.simulation import Move, Simulation, Violation

Scenario: TypeAlias = Callable[[Simulation], None]
"""Prepares a simulation: stored items, actors, and the rules that must hold."""

_UNLIMITED_FAULTS = 99


def check_schedules(scenario: Scenario, seeds: Iterable[int], **settings: Any) -> int:
    """Run one schedule for each seed, and return how many ran.  Shrinks the first violation, describes its schedule and
    raises it.

    `settings` are those of `Simulation`; `table=`, `objects=` and `clock=` are functions that make new ones."""
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
    """Run a random phase, then the fair end; returns the simulation, and the violation if there was one."""
    sim = made(seed, settings)
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
    """Make these moves again, except those that are no longer possible; then run the fair end."""
    sim = made(seed, settings)
    try:
        scenario(sim)
        sim.budget = dict.fromkeys(sim.budget, _UNLIMITED_FAULTS)
        for move in moves:
            if sim.can(move):
                sim.apply(move)
        sim.finish()
    except Violation as violation:
        return sim, violation
    return sim, None


def shrink(
    scenario: Scenario,
    seed: int,
    moves: Sequence[Move],
    violation: Violation,
    *,
    effort: int = 200_000,
    **settings: Any,
) -> list[Move]:
    """Leave moves out, many at a time and then one by one, as long as the same violation remains.  Returns the shortest
    schedule found after about `effort` moves."""
    kept, before = list(moves), len(moves) + 1
    while len(kept) < before and effort > 0:
        before = len(kept)
        for size in _sizes(len(kept)):
            at = 0
            while at < len(kept) and effort > 0:
                less = kept[:at] + kept[at + size :]
                sim, again = replay(scenario, seed, less, **settings)
                effort -= len(sim.history) + 1
                if again is not None and again.what == violation.what:
                    kept = less
                else:
                    at += max(1, size // 2)
    return kept


def _sizes(n: int) -> list[int]:
    """How many moves to leave out at a time: halves, quarters and so on, then every small number, since some moves can
    only go together."""
    sizes = []
    while (n := n // 2) > 4:
        sizes.append(n)
    return [*sizes, 4, 3, 2, 1]


def made(seed: int, settings: dict[str, Any]) -> Simulation:
    """Make the simulation of a schedule, on storage of its own."""
    given = {name: value() if name in ("table", "objects", "clock") else value for name, value in settings.items()}
    return Simulation(seed, **given)
