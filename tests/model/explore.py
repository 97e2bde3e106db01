"""Explore: schedules at random, schedules again, and every schedule of a small scenario."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.model.items import Violation
from tests.model.keepers import cleaner
from tests.model.scenarios import PREFILL, SCENARIOS, SMALL
from tests.model.world import Move, World


class Schedule(NamedTuple):
    """What a schedule showed: the violation, if any, and the moves made (or told, in words)."""

    why: str | None
    moves: list[Any]


def world(scenario: str, m: Sequence[str] = (), timeouts: int = 9, crashes: int = 9, torn: int = 9) -> World:
    """The beginning of a scenario."""
    cast = SCENARIOS.get(scenario) or SMALL[scenario]
    return World(cast, PREFILL.get(scenario, 0), frozenset(m), timeouts, crashes, torn)


def one(seed: int, scenario: str, m: Sequence[str] = (), timeouts: int = 3, crashes: int = 2) -> Schedule:
    """One random schedule, with stalls and faults drawn from the seed, then a fair end."""
    rng = random.Random(seed)
    w = world(scenario, m, rng.randint(0, timeouts), rng.randint(0, crashes), rng.randint(0, 2))
    return at_random(w, rng, lambda: w.clean_up(cleaner))


def at_random(w: World, rng: random.Random, judge: Callable[[], None]) -> Schedule:
    """Random moves, then a fair end; `judge` says what must be true then."""
    speed: dict[Any, float] = {name: rng.choice((0.03, 0.3, 1, 1, 3)) for name in w.actors}
    odd, landing = rng.choice((0.05, 0.2, 0.5)), rng.choice((0.02, 0.2, 1))

    def weight(move: Move) -> float:
        what, who = move
        return landing if what == "lands late" else speed.get(who, 1) * (1 if what == "step" else odd)

    try:
        for _ in range(rng.choice((15, 40, 100, 200))):
            if not (moves := w.moves()):
                break
            w.apply(rng.choices(moves, list(map(weight, moves)))[0])
        w.finish(rng)
        judge()
    except Violation as violation:
        return Schedule(str(violation), w.done)
    return Schedule(None, w.done)


def replay(scenario: str, m: Sequence[str], moves: Sequence[Move], telling: bool = False) -> Schedule:
    """Make these moves again, leaving out what is no longer possible."""
    w = world(scenario, m)
    w.telling = telling
    try:
        for move in moves:
            if move in w.moves():
                w.apply(move)
    except Violation as violation:
        return Schedule(str(violation), w.done)
    return Schedule(None, w.done)


def shrink(scenario: str, m: Sequence[str], moves: list[Move], why: str) -> list[Move]:
    """Leave moves out while the same violation remains."""
    size = max(1, len(moves) // 2)
    while size:
        at = 0
        while at < len(moves):
            less = moves[:at] + moves[at + size :]
            if replay(scenario, m, less).why == why:
                moves = less
            else:
                at += size
        size //= 2
    return moves


def story(scenario: str, m: Sequence[str], moves: list[Move], why: str) -> str:
    """A short schedule that shows the violation, in words."""
    if replay(scenario, m, moves).why == why:
        moves = shrink(scenario, m, moves, why)
    return "\n".join([f"{scenario}: {why}", *replay(scenario, m, moves, telling=True).moves])


# --- every schedule ---------------------------------------------------------------------------------------------------
class Explored(NamedTuple):
    """How many states were seen, whether that is all of them, and the first violation with its moves."""

    states: int
    complete: bool
    why: str | None = None
    moves: tuple[Move, ...] = ()


def explore(
    scenario: str, m: Sequence[str] = (), seconds: float = 50, faults: tuple[int, int, int] = (1, 1, 1), depth: int = 60
) -> Explored:
    """Every schedule with at most these (timeouts, crashes, torn), breadth first.

    Generators cannot be copied, so a state is reached again by making its moves again."""
    began, seen, queue = time.monotonic(), set[int](), deque[tuple[Move, ...]]([()])
    while queue and time.monotonic() - began < seconds:
        path = queue.popleft()
        for move in reach(scenario, m, faults, path).moves() if len(path) < depth else ():
            w = reach(scenario, m, faults, path)
            try:
                w.apply(move)
            except Violation as violation:
                return Explored(len(seen), False, str(violation), (*path, move))
            if (state := fingerprint(w)) not in seen:
                seen.add(state)
                queue.append((*path, move))
    return Explored(len(seen), not queue)


def reach(scenario: str, m: Sequence[str], faults: tuple[int, int, int], path: Sequence[Move]) -> World:
    """The world after these moves."""
    w = world(scenario, m, *faults)
    for move in path:
        w.apply(move, check=False)
    return w


def fingerprint(w: World) -> int:
    """A number that equal states share: storage, what is in flight, faults left, ghosts, every life's variables."""
    lives = [(name, a.request, a.life, tuple(frames(a.steps))) for name, a in sorted(w.actors.items())]
    storage = (*map(frozen, (w.items, w.objects, w.veil, Counter(w.late))),)
    left = (w.timeouts, w.crashes, w.doubts, w.torn)
    told = (w.truth.holder, w.truth.confirmed, frozen(w.truth.sent), frozen(w.truth.handled))
    return hash((storage, left, told, tuple(lives)))


def frames(steps: Any) -> Iterator[Any]:
    """Where a generator stands and what its variables hold, and so on in the one it waits for."""
    while getattr(steps, "gi_frame", None):
        frame = steps.gi_frame
        yield frame.f_lasti, tuple((name, frozen(value)) for name, value in frame.f_locals.items() if name != "w")
        steps = steps.gi_yieldfrom


def frozen(value: Any) -> Any:
    """A value that can be hashed, of the same content."""
    if isinstance(value, dict):
        return frozenset((key, frozen(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if hasattr(value, "__slots__") and not isinstance(value, tuple):
        return tuple(getattr(value, name) for name in value.__slots__)
    return 0 if callable(value) else value


# --- mutants ----------------------------------------------------------------------------------------------------------
def hunt(mutant: str, scenarios: Sequence[str], schedules: int, enough: int = 20) -> tuple[Counter[str], str]:
    """What harm a mutant does, and how often; with the story of the shortest schedule found."""
    harm: Counter[str] = Counter()
    shortest: tuple[str, Schedule] | None = None
    for scenario in scenarios:
        for seed in range(schedules // len(scenarios)):
            schedule = one(seed, scenario, [mutant])
            if schedule.why is None:
                continue
            harm[schedule.why] += 1
            if shortest is None or len(schedule.moves) < len(shortest[1].moves):
                shortest = scenario, schedule
        if harm.total() >= enough:
            break
    if shortest is None:
        return harm, "nothing found"
    scenario, (why, moves) = shortest
    return harm, story(scenario, [mutant], moves, why or "")
