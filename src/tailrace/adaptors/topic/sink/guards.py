"""The item of a topic sink, and the guards of what is written together with it.

    $Sink-<pipeline>.<writer>, 0            seq, epoch, offsets (JSON), claimed, id, page, rolling

`claimed`: the epoch has begun, and the offsets are still those of the one before.  `rolling`: see manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.coordination import guard
from tailrace.log.write.guarded_append import SequenceGuard
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Add, Change, Equals, Item, Key, Set, Update


def sink_key(pipeline: str, writer: str) -> Key:
    """Where a writer's offsets are kept, in the home it writes to."""
    return Key(f"$Sink-{pipeline}.{writer}")


@dataclass(slots=True)
class SinkGuard(SequenceGuard):
    """What every guard of a sink's item does: no run has written the item since `seen`."""

    def action(self, id: str, page: int) -> Update:
        """The same turn, and no more: the offsets stay what they are."""
        return self.turn(Set("id", id), Set("page", page))

    def turn(self, *changes: Change) -> Update:
        """The write of the next turn."""
        return Update(self.key, (Add("seq", 1), *changes), (Equals("seq", self.seen["seq"]),))


@dataclass(slots=True)
class BatchGuard(SinkGuard):
    """The guard of one batch, which stores its offsets.  `rolling`: the batch is appended afterwards."""

    epoch: int
    offsets: str
    rolling: Mapping[str, int] = field(default_factory=dict)

    def action(self, id: str, page: int) -> Update:
        """This batch, and its offsets."""
        return self.turn(
            Set("epoch", self.epoch), Set("offsets", self.offsets), Set("claimed", False), Set("id", id),
            Set("page", page), Set("rolling", dict(self.rolling)),
        )  # fmt: skip


@dataclass(slots=True)
class GroupGuard(SinkGuard):
    """The guard of one group of a manifest: no run has appended it yet."""

    def action(self, id: str, page: int) -> Update:
        """The group, and that it is done."""
        rolling = self.seen["rolling"]
        done = rolling["done"] + 1
        now = {**rolling, "done": done} if done < rolling["groups"] else {}
        return self.turn(Set("id", id), Set("page", page), Set("rolling", now))


def store_alone(mine: SinkGuard) -> Steps[Item | None]:
    """Write the item with nothing appended, unless another run has written it; gives the item as it is then."""
    action = mine.action("", 0)
    return (yield from guard.settle(mine.key, lambda item: None if item is None or mine.moved(item) else (action,)))
