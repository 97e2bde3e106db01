"""Simulation: real protocol code on simulated storage, under a seeded scheduler that injects faults.

Actors are generators of calls (`tailrace.storage.calls.Steps`).  At each step the scheduler picks the actor that moves
and the fault that happens: a write, put or delete may time out having landed, or landing at any later step, or never; a
call may be refused; a write may arrive twice and be answered the second time (`repeats`); a transaction may be torn
(plain reads do not show one of its items for a while); an actor may stall, crash and lose its memory, or be restarted
while its old life goes on.  The same seed gives the same schedule.

    def scenario(sim):
        sim.spawn("a", lambda life: append(topic, life.rng), restarts=1)
        sim.check.append(nothing_is_lost)

    check_schedules(scenario, seeds=range(1000))

Actors must draw ids from `life.rng` and must not change the items that calls return.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from tailrace.errors import TailraceError, Throttled, TimedOut
from tailrace.storage.calls import Call, DeleteObjects, Now, Pause, PutObject, Steps, Write
from tailrace.testing.actors import Actor, Factory, Life
from tailrace.testing.clock import ManualClock
from tailrace.testing.narrative import told
from tailrace.testing.simulated_calls import CALL_SECONDS, SimulatedCalls, parts, pause_seconds
from tailrace.testing.simulatedobjects import SimulatedObjects
from tailrace.testing.simulatedtable import SimulatedTable

T = TypeVar("T")
Move: TypeAlias = tuple[str, Any]
"""A move of the scheduler, as (kind, actor): ("step", "a"), ("landed", "a"), ("crash", "a"), ("lands", ("a", 7)),
("shows", key)…"""


class Violation(AssertionError):
    """Raised when a rule that must always hold does not.  `what` names the rule; the other arguments are details."""

    def __init__(self, what: str, *details: object) -> None:
        super().__init__(what, *details)
        self.what = what

    def __str__(self) -> str:
        return ": ".join(map(str, self.args))


class Simulation:
    """A table, objects, a clock and actors, with the scheduler.

    Each number is the most faults of one kind that a schedule may have; the seed decides how many it has.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        table: SimulatedTable | None = None,
        objects: SimulatedObjects | None = None,
        clock: ManualClock | None = None,
        timeouts: int = 3,
        refusals: int = 2,
        unread: int = 2,
        torn: int = 2,
        crashes: int = 2,
        jumps: int = 1,
        jump_seconds: float = 20.0,
        repeats: int = 0,
    ) -> None:
        self.seed, self.jump_seconds = seed, jump_seconds
        self.table, self.objects = table or SimulatedTable(), objects or SimulatedObjects()
        self.clock = clock or ManualClock()
        self.check: list[Callable[[Simulation], None]] = []
        """Functions that run after every step: each looks at `table.items` and `objects.items`, and raises
        `Violation`."""
        self.at_end: list[Callable[[Simulation], None]] = []
        """Functions that run once, when every actor has ended."""
        self.results: dict[str, Any] = {}
        """By life: what its steps returned, or the expected error that they raised."""
        self.ghosts: dict[str, Any] = {}
        """Notes that actors and checks keep about the schedule, for checking only."""
        self.finishing = False
        """Whether faults are over and every actor must come to its end."""
        self.history: list[tuple[Move, Call | None, object]] = []
        """Every move made: (move, its call, its answer or error)."""
        self.late: dict[tuple[str, int], Call] = {}
        """Requests without an answer that have not landed yet, by (life, number)."""
        self._rng = rng = random.Random(seed)
        most = (timeouts, refusals, unread, torn, crashes, jumps)
        kinds = ("timeout", "refusal", "unread", "torn", "crash", "jump")
        self.budget = {kind: rng.randint(0, n) for kind, n in zip(kinds, most, strict=True)}
        """How many faults of each kind are left."""
        # Drawn only if asked for, so that a seed without repeats keeps its schedule.
        self.budget["repeat"] = rng.randint(0, repeats) if repeats else 0
        self._odd, self._landing = rng.choice((0.05, 0.2, 0.5)), rng.choice((0.02, 0.2, 1.0))
        self._carrier = SimulatedCalls(self.table, self.objects, self.clock)
        self._actors: dict[str, Actor] = {}
        self._weight = 0.0

    # --- actors ---
    def spawn(
        self,
        name: str,
        factory: Factory,
        restarts: int = 0,
        *,
        dies: bool = False,
        expects: tuple[type[Exception], ...] = (),
    ) -> None:
        """Start an actor.  It may crash as often as it has restarts; with `dies`, once more, for good.

        An error in `expects` is a valid end; any other error is a violation."""
        self._start(Actor(Life(name, 1, self.seed), factory, restarts, dies, expects))

    def do(self, steps: Steps[T]) -> T:
        """Carry out steps at once, without faults, to prepare a scenario or to check its end; returns their result."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self._carrier.answer(call)
                except TailraceError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def running(self) -> list[str]:
        """The names of the lives that have not ended."""
        return list(self._actors)

    def actors(self) -> list[Actor]:
        """The actors whose lives have not ended."""
        return list(self._actors.values())

    def _start(self, actor: Actor) -> None:
        if actor.name in self._actors:
            raise ValueError(f"there is an actor {actor.name!r} already")
        actor.speed = self._rng.choice((0.03, 0.3, 1.0, 1.0, 3.0))
        self._actors[actor.name] = actor
        self._weight += actor.speed
        self._resume(actor, actor.steps.send, None)

    def _resume(self, actor: Actor, resume: Callable[[Any], Call], answer: object) -> None:
        try:
            actor.call = call = resume(answer)
            actor.calls += 1
            if isinstance(call, Pause):
                actor.wake = self.clock.monotonic() + pause_seconds(call)
            return
        except StopIteration as stop:
            self.results[actor.name] = stop.value
        except actor.expects as error:
            self.results[actor.name] = error
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"{actor.life.actor} failed", repr(error)) from error
        self._end(actor)

    def _end(self, actor: Actor) -> None:
        del self._actors[actor.name]
        self._weight = sum(a.speed for a in self._actors.values())

    # --- moves ---
    def moves(self) -> list[Move]:
        """Every move that is possible now."""
        moves: list[Move] = []
        for actor in self._actors.values():
            moves.append(("step", actor.name))
            moves += [(fault, actor.name) for fault in self._faults(actor)]
        return [*moves, *(("shows", key) for key in self.table.veil), *(("lands", sent) for sent in self.late)]

    def can(self, move: Move) -> bool:
        """Whether a move is possible now."""
        what, who = move
        if what == "shows":
            return who in self.table.veil
        if what == "lands":
            return who in self.late
        actor = self._actors.get(who)
        return actor is not None and (what == "step" or what in self._faults(actor))

    def _faults(self, actor: Actor) -> list[str]:
        left, call = self.budget, actor.call
        faults: list[str] = []
        if isinstance(call, (Write, PutObject, DeleteObjects)):
            if left["timeout"]:
                faults += ["landed", "in flight", "lost"]
            if left["torn"] and isinstance(call, Write) and len(call.actions) > 1:
                faults += [f"torn {n}" for n in range(len(call.actions))]
            if left["repeat"] and isinstance(call, Write):
                faults.append("twice")
        elif isinstance(call, Now):
            faults += ["jump"] * (left["jump"] > 0)
        elif not isinstance(call, Pause) and left["unread"]:
            faults.append("unread")
        if left["refusal"] and not isinstance(call, (Now, Pause)):
            faults.append("refused")
        if left["crash"] and (actor.restarts or actor.dies):
            faults += ["crash", "zombie"] if actor.restarts else ["crash"]
        return faults

    def apply(self, move: Move) -> None:
        """Make a move, and run the checks."""
        what, who = move
        if what == "step":
            self._step(move, self._actors[who])
        elif what == "lands":
            call = self.late.pop(who)
            self.history.append((move, call, None))
            self._carrier.land(call)
        elif what == "shows":
            self.history.append((move, None, None))
            self.table.show(who)
        else:
            self._fault(move, self._actors[who])
        for check in self.check:
            check(self)

    def _step(self, move: Move, actor: Actor, torn: int | None = None) -> None:
        call = actor.call
        try:
            if isinstance(call, Pause):
                self.clock.move(max(0.0, actor.wake - self.clock.monotonic()))
                answer = None
            else:
                answer = self._carrier.answer(call, torn)
        except TailraceError as error:
            self.history.append((move, call, error))
            self._resume(actor, actor.steps.throw, error)
        else:
            self.history.append((move, call, answer))
            self._resume(actor, actor.steps.send, answer)

    def _fault(self, move: Move, actor: Actor) -> None:
        what = move[0]
        if what in ("crash", "zombie"):
            self.budget["crash"] -= 1
            self._restart(move, actor)
        elif what == "jump":
            self.budget["jump"] -= 1
            self.clock.move(self.jump_seconds)
            self._step(move, actor)
        elif what == "twice":
            self.budget["repeat"] -= 1
            self._carrier.land(actor.call)
            self._step(move, actor)
        elif what.startswith("torn"):
            self.budget["torn"] -= 1
            self._step(move, actor, int(what[5:]))
        else:
            self._fail(move, actor)

    def _fail(self, move: Move, actor: Actor) -> None:
        """Raise an error in the actor, after the call has done to storage what the fault says."""
        what, call = move[0], actor.call
        error: TailraceError
        if what == "refused":
            self.budget["refusal"] -= 1
            error = Throttled("simulated: refused for now, by load or by a transaction in the way; nothing happened")
        else:
            self.budget["unread" if what == "unread" else "timeout"] -= 1
            error = TimedOut("simulated: sent, no answer; it may have happened, or may happen yet")
        self.history.append((move, call, error))
        if what == "landed":
            self._carrier.land(call)
        elif what == "in flight":
            self.late.update(((actor.name, n), part) for n, part in enumerate(parts(call), actor.calls * 1000))
        self.clock.move(CALL_SECONDS)
        self._resume(actor, actor.steps.throw, error)

    def _restart(self, move: Move, actor: Actor) -> None:
        self.history.append((move, actor.call, None))
        again = actor.next_life(self.seed) if actor.restarts else None
        if move[0] == "crash":
            self._end(actor)
            with suppress(RuntimeError):  # the steps made a call while closing: a dead process makes none
                actor.steps.close()
        actor.restarts, actor.dies = 0, False
        if again is not None:
            self._start(again)

    # --- schedules ---
    def run(self, steps: int | None = None) -> None:
        """Make random moves, with faults: `steps` of them (default: drawn from the seed), or until every actor has
        ended."""
        for _ in range(self._rng.choice((15, 40, 100, 200)) if steps is None else steps):
            if not self._actors:
                return
            self.apply(self._drawn())

    def _drawn(self) -> Move:
        rng, veil, late = self._rng, self.table.veil, self.late
        at = rng.random() * (self._weight + len(veil) + self._landing * len(late))
        for actor in self._actors.values():
            at -= actor.speed
            if at < 0:
                break
        else:
            if at < len(veil):
                return "shows", list(veil)[int(at)]
            if late:
                return "lands", rng.choice(list(late))
        if rng.random() < self._odd and (faults := self._faults(actor)):
            return rng.choice(faults), actor.name
        return "step", actor.name

    def finish(self, steps: int = 5000) -> None:
        """Run the fair end: no more faults, and turns for all, so that every actor must end.  Then all late requests
        land.  Raises `Violation` if the actors have not ended after `steps` moves."""
        self.finishing = True
        for _ in range(steps):
            if not self._actors:
                break
            self.apply(self._rng.choice(self._fair()))
        else:
            raise Violation("livelock", " ".join(self._actors))
        for move in self.moves():
            self.apply(move)
        for check in self.at_end:
            check(self)

    def _fair(self) -> Sequence[Move]:
        now = self.clock.monotonic()
        awake: list[Move] = [
            ("step", a.name) for a in self._actors.values() if not isinstance(a.call, Pause) or a.wake <= now
        ]
        awake += [("shows", key) for key in self.table.veil]
        awake += [("lands", sent) for sent in self.late]
        return awake or [("step", min(self._actors.values(), key=lambda a: a.wake).name)]

    def story(self) -> str:
        """Return the schedule so far, in words, a line for each move."""
        return "\n".join(told(*made) for made in self.history)
