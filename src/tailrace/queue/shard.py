"""Shards: the items in which a queue stores how far its messages are handled, and the guarded writes of their owners.

    $Group-queue_<topic id>, shard    owner, epoch, position, made (see log.group); low, queue{}, paused, id
    $Replay-<topic id>, number        shard, until, first, position, queue{}, epoch: a range that is delivered again

WRITE   queue = window with v + 1, position, low   if owner = me and epoch = mine and queue.v = seen
        [and paused = seen, if it emits]; of a replay: if queue.v = seen, with a check of the shard's lease
        [and of its paused]

Only the owner writes a window, one write at a time, and repeats that write unchanged until its outcome is known.  An
owner that cannot find out takes the shard again, under the next epoch, where no earlier write can land.  So an item of
this owner and epoch with the next v and exactly this window shows that the write has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused, Written
from tailrace.coordination.lease import HeldLease, waited
from tailrace.coordination.rules import in_force, rules
from tailrace.log.groups.group import QUEUE
from tailrace.queue.window import Window
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Action, Change, Check, Condition, Equals, Item, Key, Set, Update

T = TypeVar("T")

GROUP = QUEUE
"""The consumer group whose members are a queue's consumers."""
AT_ONCE = 90
"""The most shards that one transaction writes."""


def is_paused(units: Mapping[int, Item], q: int = 0) -> bool:
    """Whether shard `q` is paused; a shard whose item has no `paused` follows shard 0."""
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
        """The window as this owner continues it: messages that the previous owner left open count one more attempt."""
        self.window.begin()
        self.writing = False
        """Whether a write of the window is under way."""

    @property
    def key(self) -> Key:
        """The key of the shard's item."""
        return self.held.key

    @property
    def is_paused(self) -> bool:
        """Whether the queue was paused when this owner last looked; then it must emit nothing."""
        return self._queue_paused if self.paused is None else bool(self.paused % 2)

    def saw(self, units: Mapping[int, Item]) -> None:
        """Note from the items of all shards whether the queue is paused.  A shard that a growth has added has no
        `paused` of its own at first: either the growth came after a pause, which begins with shard 0, or the pause
        still reaches the new shard."""
        self.paused = units[self.partition].get("paused")
        self._queue_paused = is_paused(units) and in_force("queue.paused_by_first")

    def actions(self, new: Window, *, emits: bool, id: str | None = None) -> list[Action]:
        """WRITE: the guarded write that stores the window for this owner."""
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
        """The condition of a write that emits: nobody has paused or resumed the queue since this owner looked."""
        if not in_force("queue.paused"):
            return ()
        return (Absent("paused") if self.paused is None else Equals("paused", self.paused),)

    def saw_pause(self, item: Item | None, first: bool) -> bool:
        """Whether an emitting write was refused because the queue was paused or resumed; if so, note the new state."""
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
        """Whether the stored item still belongs to this owner."""
        return self.held.stands(item)

    def has_landed(self, new: Window, item: Item | None) -> bool:
        """Whether the stored item shows that the write of this window has happened.  Owner and version are not enough:
        a transaction that was given up may have landed with another window."""
        return item is not None and self.stands(item) and item.get("queue") == new.stored(self.v + 1)

    def wrote(self, new: Window) -> None:
        """Note that the write of this window has happened."""
        self.v += 1
        self.stored, self.window = new, new.copy()


class ReplayShard(Shard):
    """A range of a shard that the shard's owner delivers again; it has a window of its own."""

    def __init__(self, shard: Shard, key: Key, item: Item) -> None:
        super().__init__(shard.partition, shard.held, item)
        self._key, self.until, self._live = key, int(item["until"]), shard

    @property
    def key(self) -> Key:
        """The key of the replay's item."""
        return self._key

    @property
    def is_paused(self) -> bool:
        """Whether the shard was paused when its owner last looked."""
        return self._live.is_paused

    def actions(self, new: Window, *, emits: bool, id: str | None = None) -> list[Action]:
        """WRITE the replay's window, and check the shard's lease in the same transaction; the shard's own window does
        not move."""
        seen: Condition = Equals(("queue", "v"), self.v) if self.v else Absent("queue")
        changes = (*self._changes(new, id)[:2], Set("epoch", self.held.epoch))
        update = Update(self._key, changes, rules({"queue.replay": seen}))
        fence = Check(self.held.key, self.held.when("check") + (self._live.pause_seen if emits else ()))
        return [update, fence] if in_force("queue.replay_fence") else [update]

    def stands(self, item: Item | None) -> bool:
        """Whether the replay's item is still there; the check of the shard's lease says who owns it."""
        return item is not None

    def has_landed(self, new: Window, item: Item | None) -> bool:
        """Whether the stored item shows that this owner's write has happened; the epoch matters because another owner
        may have written an equal window."""
        return item is not None and item.get("epoch") == self.held.epoch and super().has_landed(new, item)

    def saw_pause(self, item: Item | None, first: bool) -> bool:
        """Whether the queue was paused or resumed; a replay's transaction checks that on its second action, at the
        shard's item."""
        return not first and self._live.saw_pause(item, True)


@dataclass(slots=True)
class Planned:
    """A planned write of one shard's window."""

    shard: Shard
    new: Window
    emits: bool = False
    outcome: str = ""
    """"written", "paused" or "fenced"; empty while the outcome is not known."""

    @property
    def actions(self) -> list[Action]:
        """The actions of the guarded write."""
        return self.shard.actions(self.new, emits=self.emits)


def by_transaction(writes: Sequence[T], shard_of: Callable[[T], Shard]) -> list[list[T]]:
    """Divide writes of shards into transactions: `AT_ONCE` shards in each, and each replay by itself."""
    live = [one for one in writes if not isinstance(shard_of(one), ReplayShard)]
    groups = [live[n : n + AT_ONCE] for n in range(0, len(live), AT_ONCE)]
    return groups + [[one] for one in writes if isinstance(shard_of(one), ReplayShard)]


def write(planned: Sequence[Planned], patience: float = guard.PATIENCE) -> Steps[None]:
    """Write the windows of some shards in one transaction, and set each one's `outcome`.

    Raises `TimedOut` if the storage gives no answer for too long: the caller must then repeat exactly these writes, or
    take the shards again, before it writes anything else to them."""
    for one in planned:
        if one.emits and one.shard.is_paused and in_force("queue.paused"):
            one.outcome = "paused"  # the owner noticed the pause after it planned this write
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
    """Return the planned write to which the refused action belongs, and whether it was that write's first action."""
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
    """Set the outcome that a refusal shows: an earlier attempt has landed, the queue is paused, or the shard has a
    newer owner."""
    shard = one.shard
    if first and shard.has_landed(one.new, item):
        one.outcome = "written"
    elif one.emits and shard.saw_pause(item, first):
        one.outcome = "paused" if shard.is_paused else ""
    else:
        one.outcome = "fenced"
