"""Members of a consumer group: they share a topic's partitions (see coordination.member)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.coordination import lease, member
from tailrace.log.groups import group as groups
from tailrace.log.groups.group import Group
from tailrace.storage.calls import Steps

if TYPE_CHECKING:
    from tailrace.log.topic import Position


@dataclass(frozen=True, slots=True)
class PartitionBalance(member.Balance[int]):
    """What a member found when it looked at the group."""

    passed: int = 0
    """How many of the topic's growths the group has passed, so that members may read past them."""


class PartitionMember(member.Member[int]):
    """One member of a consumer group."""

    def __init__(
        self,
        group: Group,
        number: int,
        *,
        name: str | None = None,
        ttl: float = lease.TTL_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(group, number, name=name, ttl=ttl, wall=wall)
        self.group = group

    def join(self, start: Position) -> Steps[None]:
        """Become a member; the first one makes the group, which begins at `start`.  `AlreadyThere` if another living
        member has the same given name."""
        yield from self.refuse_group()
        yield from groups.make(self.group, start)
        yield from self.enter()

    def refuse_group(self) -> Steps[None]:
        """Refuse to be a member of a queue's group."""
        yield from groups.refuse_queue(self.group, "cannot be read for; choose another group")

    def balance(self) -> Steps[PartitionBalance]:
        """Look at the group: drop partitions that another member has taken over, and take free ones that belong to this
        member's share."""
        look = yield from self.share_out()
        passed = groups.passed(self.group.log.newest, {q: item["position"] for q, item in look.units.items()})
        return PartitionBalance(look.over, look.settled, look.units, passed)
