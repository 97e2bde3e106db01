"""TopicLog: the handle of a topic's log, with what readers, producers and upkeep of this process know of its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.coordination import guard
from tailrace.errors import UnknownTopic
from tailrace.log.format import head as heads
from tailrace.log.format.head import Head
from tailrace.log.record import Partitioner
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Item


@dataclass(slots=True)
class TopicLog:
    """A topic's name and id, how small a chunk the table keeps inline, and the newest head that this process has seen.

    A stale head is safe: an append that relies on it is refused and costs another round trip."""

    name: str
    id: str
    inline_bytes: int = 0
    joins_inline: bool = False
    new_id: Callable[[], str] = heads.new_id
    seen: Head | None = None
    partitions: int = 0
    """How many partitions the newest head has; 0 before a head was read."""
    partitioner: Partitioner = "sha256"
    """By which hash a key's partition is chosen."""
    on_commit: Callable[[], object] = lambda: None
    """Called after each append by this process, to wake the readers that wait for records."""
    turn: int = 0
    """Counts up, so that each batch without keys begins with another partition."""

    def next_turn(self) -> int:
        """A number for the next batch without keys; two threads may get the same one."""
        self.turn += 1
        return self.turn

    def head(self) -> Steps[Head]:
        """Read the newest head."""
        item = yield from guard.read(heads.head_key(self.id))
        return self.saw(item)

    def saw(self, item: Item | None) -> Head:
        """Remember the head item that a read or a refusal returned."""
        if item is None:
            raise UnknownTopic(f"topic {self.name!r} was deleted")
        self.seen = Head(item)
        self.partitions = self.seen.partitions
        return self.seen

    @property
    def newest(self) -> Head:
        """The newest head that this process has seen."""
        assert self.seen is not None, "no head was read yet"
        return self.seen
