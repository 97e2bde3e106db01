"""Members: process lives that share a group's partitions, without a leader.

Each member looks at the same items and works out the same assignment by itself: it lets go of what is over its share,
once that is committed, and takes what is free or whose holder is gone.  Where two see different things for a while, the
leases keep them apart.  Everything here is steps; one member is used by one thread or task at a time, except `beat`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.coordination import guard, lease, position
from tailrace.coordination.guard import Refused, Unanswered
from tailrace.coordination.lease import NOBODY, Beats, Held
from tailrace.coordination.position import Move
from tailrace.errors import AlreadyThere, Fenced
from tailrace.log import group as groups
from tailrace.log.assignment import assign
from tailrace.log.group import Group
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ACTIONS
from tailrace.storage.tables import Absent, Action, Add, Delete, Equals, Item, Put, Set, Update

if TYPE_CHECKING:
    from tailrace.log.topic import Position


@dataclass(frozen=True, slots=True)
class Balance:
    """What a look at the group came to."""

    over: frozenset[int]
    """Partitions over this member's share, to be released once what was handled of them is committed."""
    settled: bool
    """Whether it has exactly its share."""
    passed: int = 0
    """How many of the times that the topic has grown the group is past, and may be read over."""


class Member:
    """One member of a group.  `held` are its leases by partition, `positions` how far each is committed."""

    def __init__(
        self,
        group: Group,
        number: int,
        *,
        name: str | None = None,
        ttl: float = lease.TTL,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.group, self.number, self.ttl = group, number, ttl
        self.held: dict[int, Held] = {}
        self.positions: dict[int, int] = {}
        self._name, self._wall, self._beats = name, wall, Beats(ttl)
        self._named: Held | None = None

    # -- coming, living, going
    def join(self, start: Position) -> Steps[None]:
        """Become a member; the first one makes the group, which begins at `start`.

        `AlreadyThere` if another member goes by the same given name, and lives."""
        yield from groups.make(self.group, start)
        yield from self._appear()
        if self._name is not None:
            yield from self._take_name(self._name)

    def _appear(self) -> Steps[None]:
        item = {"beat": 0, "topic": self.group.log.id, "name": self._name or f"member-{self.number:x}"}
        put = Put(self.group.member(self.number), {**item, "shown": lease.shown(self._wall(), self.ttl)}, (Absent(),))
        while isinstance((yield from guard.attempt(put)), Unanswered):
            yield from calls.pause(0)

    def _take_name(self, name: str) -> Steps[None]:
        key, beats = self.group.named(name), Beats(self.ttl)
        first: dict[int, int] = {}
        while self._named is None:
            item = yield from guard.read(key)
            if item is None:
                yield from guard.attempt(Put(key, {"owner": NOBODY, "epoch": 0, "name": name}, (Absent(),)))
                continue
            owner = item["owner"]
            before = yield from calls.now()
            holder = yield from guard.read(self.group.member(owner))
            after = yield from calls.now()
            beats.look({owner: holder["beat"]} if holder else {}, before, after)
            if holder and owner != self.number and first.setdefault(owner, holder["beat"]) != holder["beat"]:
                yield from self._disappear()
                raise AlreadyThere(
                    f"group {self.group.name!r} of {self.group.log.name!r} has a member {name!r} that lives; "
                    "give each its own name, or none"
                )
            taken = None
            if lease.takable(item, self.number, holder is None or owner in beats.silent):
                taken = yield from lease.take(key, self.number, item)
            if taken is not None:
                self._named = taken[0]
            else:
                yield from calls.pause(5)

    def beat(self) -> Steps[bool]:
        """MEMBER: say that it lives.  One that was taken for dead and removed comes back."""
        shown = lease.shown(self._wall(), self.ttl)
        raise_it = Update(self.group.member(self.number), (Add("beat", 1), Set("shown", shown)))
        if isinstance((yield from guard.attempt(raise_it)), Refused):
            yield from self._appear()
        return True

    def leave(self) -> Steps[None]:
        """Give everything back, and be a member no more; commit first."""
        for q in list(self.held):
            yield from self.release(q)
        if self._named is not None:
            yield from lease.release(self._named)
            self._named = None
        yield from self._disappear()

    def _disappear(self) -> Steps[None]:
        while isinstance((yield from guard.attempt(Delete(self.group.member(self.number)))), Unanswered):
            yield from calls.pause(0)

    # -- sharing
    def balance(self) -> Steps[Balance]:
        """Look at the group: drop what another has taken over, take what is this member's and can be had."""
        # Shards before members: who owns a shard was a member before, so an owner who is none is gone.
        shards = yield from self._shards()
        before = yield from calls.now()
        found = yield from groups.members(self.group)
        after = yield from calls.now()
        self._beats.look({n: item["beat"] for n, item in found.items()}, before, after)
        live = {n for n in found if n not in self._beats.silent} | {self.number}
        self._drop_lost(shards)
        owners = {q: item["owner"] for q, item in shards.items()}
        share = set(assign(shards, live, owners)[self.number])
        for q in sorted(share - self.held.keys()):
            yield from self._take(q, shards[q], owners[q] not in live)
        yield from self._tidy(shards, share, found)
        over = frozenset(self.held.keys() - share)
        passed = groups.passed(self.group.log.newest, {q: item["position"] for q, item in shards.items()})
        return Balance(over, not over and share == self.held.keys(), passed)

    def _shards(self) -> Steps[dict[int, Item]]:
        if self.group.log.seen is None:
            yield from self.group.log.head()
        shards = yield from groups.shards(self.group)
        if len(shards) < self.group.partitions:
            yield from groups.check_there(self.group)
            yield from groups.make(self.group, "earliest")
            shards = yield from groups.shards(self.group)
        return shards

    def _drop_lost(self, shards: Mapping[int, Item]) -> None:
        for q in [q for q, held in self.held.items() if q not in shards or shards[q]["epoch"] > held.epoch]:
            self._drop(q)

    def _take(self, partition: int, item: Item, gone: bool) -> Steps[None]:
        if lease.takable(item, self.number, gone):
            taken = yield from lease.take(self.group.shard(partition), self.number, item)
            if taken is not None:
                self.held[partition], now = taken
                self.positions[partition] = now["position"]

    def _tidy(self, shards: Mapping[int, Item], share: set[int], found: Mapping[int, Item]) -> Steps[None]:
        """Give back what a take whose answer was lost has left in this member's name; remove members that are gone."""
        for q, item in shards.items():
            if item["owner"] == self.number and q not in self.held and q not in share:
                yield from lease.release(Held(self.group.shard(q), self.number, item["epoch"]))
        for n in found.keys() & self._beats.silent:
            if n != self.number:
                yield from guard.attempt(Delete(self.group.member(n), (Equals("beat", found[n]["beat"]),)))

    # -- what it holds
    def commit(self, to: Mapping[int, int], patience: float = guard.PATIENCE) -> Steps[dict[int, Fenced]]:
        """COMMIT: all before these offsets is handled.  Gives, and drops, the partitions that have a newer owner."""
        moves = [Move(self.held[q], self.positions[q], at) for q, at in to.items() if at > self.positions.get(q, at)]
        refused: dict[int, Fenced] = {}
        for start in range(0, len(moves), MAX_ACTIONS):
            fenced = yield from position.commit(moves[start : start + MAX_ACTIONS], patience)
            refused |= {key.i: error for key, error in fenced.items()}
        for q in refused:
            self._drop(q)
        self.positions.update({move.held.key.i: move.to for move in moves if move.held.key.i not in refused})
        return refused

    def commit_with(
        self, partition: int, to: int, also: Sequence[Action], patience: float = guard.PATIENCE
    ) -> Steps[int]:
        """COMMIT with other writes, exactly once; gives the position then stored (see position.commit_with).

        `Fenced`, and the partition is dropped, if it has a newer owner."""
        move = Move(self.held[partition], self.positions[partition], to)
        try:
            self.positions[partition] = yield from position.commit_with(move, also, patience)
        except Fenced:
            self._drop(partition)
            raise
        return self.positions[partition]

    def release(self, partition: int, patience: float = guard.PATIENCE) -> Steps[None]:
        """Give a partition back."""
        held = self.held[partition]
        self._drop(partition)
        yield from lease.release(held, patience)

    def _drop(self, partition: int) -> None:
        del self.held[partition], self.positions[partition]
