"""The item of a topic sink, and the guards of what is written together with it.

    $Sink-<pipeline>.<writer>, 0            seq, epoch, offsets (JSON), claimed, id, page, rolling

`claimed`: the epoch has begun, and the offsets are still those of the epoch before.  `rolling`: see manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.coordination import guard
from tailrace.log.write.guarded_append import SequenceGuard
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Add, Change, Equals, Item, Key, Set, Update


def sink_key(pipeline: str, writer: str) -> Key:
    """The key of the item that has a writer's offsets, in the home that it writes to."""
    return Key(f"$Sink-{pipeline}.{writer}")


@dataclass(slots=True)
class SinkGuard(SequenceGuard):
    """The base of all guards of a sink's item: the write happens only if no run has written the item since `seen`."""

    def action(self, id: str, page: int) -> Update:
        """The write that only takes the next turn and leaves the offsets unchanged."""
        return self.turn(Set("id", id), Set("page", page))

    def turn(self, *changes: Change) -> Update:
        """A write of the item that counts up `seq` and makes these changes."""
        return Update(self.key, (Add("seq", 1), *changes), (Equals("seq", self.seen["seq"]),))


@dataclass(slots=True)
class BatchGuard(SinkGuard):
    """The guard of one batch, which stores its offsets.  With `rolling`, the batch is appended afterwards: see
    manifest."""

    epoch: int
    offsets: str
    rolling: Mapping[str, int] = field(default_factory=dict)

    def action(self, id: str, page: int) -> Update:
        """The write that stores the batch's offsets."""
        return self.turn(
            Set("epoch", self.epoch), Set("offsets", self.offsets), Set("claimed", False), Set("id", id),
            Set("page", page), Set("rolling", dict(self.rolling)),
        )  # fmt: skip


@dataclass(slots=True)
class GroupGuard(SinkGuard):
    """The guard of one group of a manifest: the group is appended only if no run has appended it yet."""

    def action(self, id: str, page: int) -> Update:
        """The write that notes that the group is appended."""
        rolling = self.seen["rolling"]
        done = rolling["done"] + 1
        now = {**rolling, "done": done} if done < rolling["groups"] else {}
        return self.turn(Set("id", id), Set("page", page), Set("rolling", now))


def store_alone(mine: SinkGuard) -> Steps[Item | None]:
    """Write the sink's item without an append, unless another run has written it; return the item as it is then."""
    action = mine.action("", 0)
    return (yield from guard.settle(mine.key, lambda item: None if item is None or mine.moved(item) else (action,)))
