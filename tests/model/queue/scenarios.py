"""Scenarios of the queue, and the mutants: each a rule taken away, with a schedule that shows the harm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.model.explore import Schedule, at_random
from tests.model.items import must
from tests.model.queue.actors import FAILS, FLAKY, KILLS, mover, pauser, pusher, replayer, sweeper, worker
from tests.model.queue.items import CLOCK, DEAD, EFFECT, LOG, REPLAY, SHARD, Message, Shard
from tests.model.queue.truth import Truth
from tests.model.scenarios import Mutant
from tests.model.world import Cast, World

_TWO: Cast = {"worker1": (worker(), 1), "worker2": (worker(), 1)}
_EXACT: Cast = {"worker1": (worker(transactional=True), 1), "worker2": (worker(transactional=True), 1)}
_HASTY: Cast = {f"worker{n}": (worker(transactional=True, gives_up=True), 1) for n in (1, 2)}
_SOME: tuple[Message, ...] = (("a", 0), ("b", 0), ("a", 1), ("c", 0), ("b", 1))


class Scene(NamedTuple):
    """Who acts, what is in the queue before, and how often a live owner may be taken for dead."""

    cast: Cast
    log: tuple[Message, ...] = _SOME
    doubts: int = 1
    crashes: int = 2
    exact: bool = False


SCENES: dict[str, Scene] = {
    "plain": Scene(_TWO),
    "exact": Scene(_EXACT, exact=True),
    "unknown": Scene(_HASTY, exact=True),
    "leave": Scene({"worker1": (worker(leaves=True), 0), "worker2": (worker(), 1)}),
    "fails": Scene(_TWO, ((FAILS, 0), ("a", 0), (FAILS, 1), ("a", 1))),
    "flaky": Scene(_TWO, ((FLAKY, 0), ("a", 0), (FLAKY, 1))),
    "kills": Scene(_TWO, (("a", 0), (KILLS, 0), ("b", 0), ("c", 0)), doubts=0, crashes=0),
    "delay": Scene(
        {
            **_TWO,
            "mover1": (mover((0, 1)), 0),
            "mover2": (mover((0, 1)), 0),
            "sweeper": (sweeper((0, 1)), 0),
            "push1": (pusher(("d", 0), delay=0), 0),
            "push2": (pusher(("e", 0), delay=1), 0),
        },
        (("a", 0),),
    ),
    "dedup": Scene({**_TWO, "push1": (pusher(("x", 0), True), 1), "push2": (pusher(("x", 0), True), 0)}, (("a", 0),)),
    "pause": Scene({**_TWO, "pauser": (pauser, 0)}),
    "replay": Scene({**_TWO, "replayer": (replayer, 0)}),
}


class QueueWorld(World):
    """The log's world, with the queue's items."""

    def __init__(self, scene: Scene, m: frozenset[str], timeouts: int, crashes: int, torn: int) -> None:
        self._scene, self._set = scene, False
        super().__init__({}, 0, m, timeouts, min(crashes, scene.crashes), torn)
        self.truth = Truth()  # type: ignore[assignment]
        self.items = {SHARD: Shard(), LOG: scene.log, EFFECT: (), DEAD: (), CLOCK: 0}
        self.doubts = scene.doubts
        for name, (make, restarts) in scene.cast.items():
            self.start(name, make, restarts)

    def _restart(self, what: str, who: str) -> None:
        if what == "crash":  # a zombie stays alive, whatever others think of it
            alive, me = self.truth.alive, f"{self.actors[who].me}/"  # type: ignore[attr-defined]
            alive -= {name for name in alive if name.startswith(me)}
        super()._restart(what, who)

    def judge(self) -> None:
        """What must be true in the end."""
        self.truth.check(self.items, self.objects)
        shard, log = self.items[SHARD], self.items[LOG]
        must(shard.window.position == len(log), "a message was never done")
        must(self.truth.sent <= set(log), "a message that was acknowledged to its pusher is lost")
        wrong = [n for n in self.items[DEAD] if log[n][0] not in (FAILS, KILLS)]
        must(not wrong, "a message that did no harm is dead")
        if self._scene.exact:
            must(sorted(self.items[EFFECT]) == list(range(len(log))), "an effect is missing")
        replay = self.items.get(REPLAY)
        if replay is not None:
            must(self.items[("again", 0)] == tuple(range(replay.until)), "a replay left something out, or came twice")


def one(seed: int, scenario: str, m: Sequence[str] = (), timeouts: int = 3, crashes: int = 2) -> Schedule:
    """One random schedule, with stalls and faults drawn from the seed, then a fair end."""
    rng = random.Random(seed)
    scene = SCENES[scenario]
    w = QueueWorld(scene, frozenset(m), rng.randint(0, timeouts), rng.randint(0, crashes), 0)
    return at_random(w, rng, w.judge)


MUTANTS: dict[str, Mutant] = {
    "window.both": Mutant("plain", 0, "an acknowledgement by a past owner counts"),
    "window.v": Mutant("plain", 61, "an acknowledgement was forgotten"),
    "window.paused": Mutant("pause", 1, "emitted while paused"),
    "held.fence": Mutant("replay", 12, "a past owner's write of another item counts"),
    "replay.v": Mutant("replay", 1, "a replay left something out, or came twice"),
    "dedup.absent": Mutant("dedup", 0, "a message is in the queue twice"),
    "delay.absent": Mutant("delay", 8, "a message is in the queue twice"),
    "delay.low": Mutant("delay", 33, "a message is in the queue twice"),
    "move.exists": Mutant("delay", 1, "a message is in the queue twice"),
    "pause.seen": Mutant("pause", 47, "livelock: worker1 worker2"),
    "text.takes_not_counted": Mutant("kills", 0, "livelock: worker1 worker2"),
    "text.no_isolation": Mutant("kills", 0, "a message that did no harm is dead"),
    "text.emit_after": Mutant("kills", 0, "livelock: worker1 worker2"),
    "text.no_answer_is_refused": Mutant("exact", 0, "an effect happened twice"),
    "text.late_for_own": Mutant("unknown", 0, "an acknowledgement was forgotten"),
    "text.retry_steps_aside": Mutant("flaky", 0, "the order of a key is broken"),
    "text.bury_two_steps": Mutant("fails", 0, "a dead letter is missing, or there twice"),
    "text.replay_moves_position": Mutant("replay", 0, "livelock: worker1 worker2' worker2"),
    "text.push_after_doubt": Mutant("delay", 124, "a message is in the queue twice"),
    "text.move_two_steps": Mutant("delay", 0, "a message is in the queue twice"),
    "text.sweep_unconfirmed": Mutant("delay", 13, "a message is in the queue twice"),
}

SURVIVORS: dict[str, Mutant] = {
    "window.owner": Mutant("plain exact", None, "the epoch says it as well; kept as an alarm"),
    "window.epoch": Mutant("plain exact", None, "the owner's number and v say it as well; kept as an alarm"),
}
"""Rules whose loss does no harm in the model, and why they are kept all the same."""
