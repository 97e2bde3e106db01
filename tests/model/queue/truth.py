"""Truth: what really happened to each message, and what must hold after every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.model.items import Key, must
from tests.model.queue import rules
from tests.model.queue.items import DEAD, EFFECT, LOG, REPLAY, SHARD, WINDOW, Replay, Shard, Window


class Truth:
    """Who holds the shard, who was acknowledged, and what a schedule promised."""

    def __init__(self) -> None:
        self.holder: tuple[str, int] | None = None
        """(life, epoch) of the last take."""
        self.alive: set[str] = set()
        self.bytes: dict[Any, Any] = {}
        self.sent: set[Any] = set()
        """Messages that a pusher was told are in the queue."""
        self.handled: set[int] = set()
        """Offsets that a handler has come to the end of."""
        self.replayed: set[int] = set()
        self.paused = False
        """Whether a supervisor was told that the queue is paused."""
        self.before = Window()
        self.confirmed = 0

    def witness(self, rule: Any, args: Sequence[Any], item: Any, items: Mapping[Key, Any]) -> None:
        """See a write happen."""
        if rule is rules.TAKE:
            self.holder = args[1], item.epoch
        elif rule is rules.RELEASE:
            self.holder = None
        elif rule is rules.WRITE:
            must(self.holder == (args[0], args[1]), "an acknowledgement by a past owner counts")
            must(not (args[4] and self.paused), "emitted while paused")
        elif rule is rules.HELD:
            must(self.holder == (args[0], args[1]), "a past owner's write of another item counts")

    def check(self, items: Mapping[Key, Any], objects: Mapping[Any, Any]) -> None:
        """Everything that must hold between any two steps."""
        shard: Shard = items[SHARD]
        w, log = shard.window, items[LOG]
        before, self.before = self.before, w
        must(all(w.done(n) for n in range(len(log)) if before.done(n)), "an acknowledgement was forgotten")
        must(w.acked + w.dead == w.position + len(w.bits), "the stats do not add up")
        must(w.dead == len(items[DEAD]), "a dead letter is missing, or there twice")
        must(max((*w.bits, w.upto - 1), default=0) < w.position + WINDOW, "emitted beyond the window")
        must(len(set(log)) == len(log), "a message is in the queue twice")
        must(len(set(items[EFFECT])) == len(items[EFFECT]), "an effect happened twice")
        done = [n for n in range(len(log)) if w.done(n)]
        must(all(n in self.handled or n in items[DEAD] for n in done), "acknowledged, and never handled")
        for n in done:
            earlier = (k for k in range(n) if log[k][0] == log[n][0])
            must(all(w.done(k) for k in earlier), "the order of a key is broken")
        self._check_replay(items.get(REPLAY))

    def _check_replay(self, replay: Replay | None) -> None:
        if replay is not None:
            done = {n for n in range(replay.until) if replay.window.done(n)}
            must(done <= self.replayed, "replayed, and never handled")
