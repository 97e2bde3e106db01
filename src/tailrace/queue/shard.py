"""Shards: the items in which a queue keeps how far its messages are handled, and the guarded writes of their owners.

    $Group-queue_<topic id>, shard    owner, epoch, position, made (see log.group); low, queue{}, paused, id
    $Replay-<topic id>, number        shard, until, first, position, queue{}, epoch: a range that is delivered again

WRITE   queue = window with v + 1, position, low   if owner = me and epoch = mine and queue.v = seen
        [and paused = seen, if it emits]; of a replay: if queue.v = seen, with a check of the shard's lease
        [and of its paused]

Only the owner writes a window, one write at a time, repeated unchanged until it is known what became of it; an owner
that cannot find out takes the shard again, under the next epoch, where no earlier write can land.  So an item of this
owner and epoch with the next v and this very window shows that the write has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.coordination.lease import HeldLease, waited
from tailrace.coordination.rules import in_force, rules
from tailrace.log.groups.group import QUEUE
from tailrace.queue.window import Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Change, Check, Condition, Equals, Item, Key, Set, Update

GROUP = QUEUE
"""The consumer group whose members are a queue's consumers."""
AT_ONCE = 90
"""Shards written in one transaction."""


def is_paused(units: Mapping[int, Item], q: int = 0) -> bool:
    """Whether a shard hands nothing out; one that says nothing of it does as shard 0."""
    return bool(units.get(q, {}).get("paused", units.get(0, {}).get("paused", 0)) % 2)


class Shard:
    """A shard as its owner knows it: the lease, and the window as last written."""

    def __init__(self, partition: int, held: HeldLease, item: Item) -> None:
        self.partition, self.held = partition, held
        self.stored = Window.of(item["position"], item.get("queue"))
        """The window as it is stored."""
        self.v: int = item["queue"]["v"] if "queue" in item else 0
        self.paused: int | None = item.get("paused")
        self._queue_paused = False
        self.window = self.stored.copy()
        """The window as this owner found it: with what the owner before has left open counted."""
        self.window.begin()
        self.writing = False
        """Whether a write of it is on its way."""

    @property
    def key(self) -> Key:
        """Where its item is."""
        return self.held.key

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be emitted, as far as is known."""
        return self._queue_paused if self.paused is None else bool(self.paused % 2)

    def saw(self, units: Mapping[int, Item]) -> None:
        """Take in whether the queue is paused.  A shard that a growth has added says nothing of it itself: it was made
        behind a pause, which begins with shard 0, or the pause finds it."""
        self.paused = units[self.partition].get("paused")
        self._queue_paused = is_paused(units) and in_force("queue.paused_by_first")

    def actions(self, new: Window, *, emits: bool, id: str | None = None) -> list[Action]:
        """WRITE: the window, in the name of this owner."""
        when = rules(
            {
                "queue.owner": Equals("owner", self.held.owner),
                "queue.epoch": Equals("epoch", self.held.epoch),
                "queue.v": Equals(("queue", "v"), self.v) if self.v else Absent("queue"),
            }
        )
        return [Update(self.key, self._changes(new, id), when + (self.pause_seen if emits else ()))]

    @property
    def pause_seen(self) -> tuple[Condition, ...]:
        """The condition of a write that emits: the queue was neither paused nor let go on since this owner looked."""
        if not in_force("queue.paused"):
            return ()
        return (Absent("paused") if self.paused is None else Equals("paused", self.paused),)

    def saw_pause(self, item: Item | None, first: bool) -> bool:
        """Take in that a write which emits was refused since the queue was paused, or goes on; False if it was not."""
        if not first or item is None or not self.held.stands(item) or item.get("paused") == self.paused:
            return False
        self.paused = item.get("paused")
        return True

    def _changes(self, new: Window, id: str | None) -> tuple[Change, ...]:
        changes: tuple[Change, ...] = (
            Set("queue", new.stored(self.v + 1)),
            Set("position", new.position),
            Set("low", new.position - 1),
        )
        return changes if id is None else (*changes, Set("id", id))

    def stands(self, item: Item | None) -> bool:
        """Whether a stored item is still this owner's."""
        return self.held.stands(item)

    def has_landed(self, new: Window, item: Item | None) -> bool:
        """Whether a stored item shows that the write of this window has happened; a transaction that was given up may
        have landed instead, with another window."""
        return item is not None and self.stands(item) and item.get("queue") == new.stored(self.v + 1)

    def wrote(self, new: Window) -> None:
        """The write has happened."""
        self.v += 1
        self.stored, self.window = new, new.copy()


class ReplayShard(Shard):
    """A range of a shard that the shard's owner delivers again; it has a window of its own."""

    def __init__(self, shard: Shard, key: Key, item: Item) -> None:
        super().__init__(shard.partition, shard.held, item)
        self._key, self.until, self._live = key, int(item["until"]), shard

    @property
    def key(self) -> Key:
        """Where its item is."""
        return self._key

    @property
    def is_paused(self) -> bool:
        """Whether nothing may be emitted, as far as is known of the shard."""
        return self._live.is_paused

    def actions(self, new: Window, *, emits: bool, id: str | None = None) -> list[Action]:
        """The same, under the shard's lease; the shard's own window does not move."""
        seen: Condition = Equals(("queue", "v"), self.v) if self.v else Absent("queue")
        changes = (*self._changes(new, id)[:2], Set("epoch", self.held.epoch))
        update = Update(self._key, changes, rules({"queue.replay": seen}))
        fence = Check(self.held.key, self.held.when("check") + (self._live.pause_seen if emits else ()))
        return [update, fence] if in_force("queue.replay_fence") else [update]

    def stands(self, item: Item | None) -> bool:
        """Whether the replay is still there; whose it is, the check of the shard's lease tells."""
        return item is not None

    def has_landed(self, new: Window, item: Item | None) -> bool:
        """The same; an owner before or after this one may have written the very same window."""
        return item is not None and item.get("epoch") == self.held.epoch and super().has_landed(new, item)

    def saw_pause(self, item: Item | None, first: bool) -> bool:
        """The same, of the shard, whose item is checked second."""
        return not first and self._live.saw_pause(item, True)


@dataclass(slots=True)
class Planned:
    """A write of one shard's window that is to be made."""

    shard: Shard
    new: Window
    emits: bool = False
    outcome: str = ""
    """"written", "paused" or "fenced", once it is known."""

    @property
    def actions(self) -> list[Action]:
        """The guarded write."""
        return self.shard.actions(self.new, emits=self.emits)


def write(planned: Sequence[Planned], patience: float = guard.PATIENCE) -> Steps[None]:
    """Write some shards in one transaction; each one's `outcome` says what became of it.

    `TimedOut` if there is no answer for too long: then the same writes must be made again before any other."""
    for one in planned:
        if one.emits and one.shard.is_paused and in_force("queue.paused"):
            one.outcome = "paused"  # known since it was planned
    left = [one for one in planned if not one.outcome]
    began = yield from calls.now()
    while left:
        actions = [one.actions for one in left]
        outcome = yield from guard.attempt(*(action for some in actions for action in some), patience=patience)
        if isinstance(outcome, Written):
            _all_written(left)
            return
        if isinstance(outcome, Refused):
            one, first = _of(left, actions, outcome.index)
            _compare(one, outcome.item, first)
            if one.outcome == "written":
                one.shard.wrote(one.new)
            left = [one for one in left if not one.outcome]
        else:
            yield from waited(began, patience, "an acknowledgement")


def _of(left: Sequence[Planned], actions: Sequence[Sequence[Action]], index: int) -> tuple[Planned, bool]:
    """Whose action was refused, and whether it was the first of its actions."""
    for one, some in zip(left, actions, strict=True):
        if index < len(some):
            return one, index == 0
        index -= len(some)
    raise AssertionError("a refusal names one of the actions")


def _all_written(planned: Iterable[Planned]) -> None:
    for one in planned:
        one.outcome = "written"
        one.shard.wrote(one.new)


def _compare(one: Planned, item: Item | None, first: bool) -> None:
    """What a refusal means: an earlier attempt has landed, the queue is paused, or the shard has a newer owner."""
    shard = one.shard
    if first and shard.has_landed(one.new, item):
        one.outcome = "written"
    elif one.emits and shard.saw_pause(item, first):
        one.outcome = "paused" if shard.is_paused else ""
    else:
        one.outcome = "fenced"
