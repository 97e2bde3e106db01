"""Members: process lives that share the units of a group, without a leader.

A unit is whatever one member at a time works on: a partition of a topic, a shard of a change stream.  Units come and
go, and each has an item with owner, epoch and how far it was worked on, which only its owner moves (see `position`).

Each member looks at the same items and works out the same assignment by itself: it releases units over its share, once
they are committed, and takes units that are free or whose holder is gone.  While two members see different things, the
leases keep them apart.  Everything here is steps.  One thread or task at a time uses a member; only `beat` may run
beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tailrace.coordination import guard, lease, position
from tailrace.coordination.assignment import Ordered, assign
from tailrace.coordination.guard import Refused, Unanswered
from tailrace.coordination.lease import NOBODY, Beats, HeldLease
from tailrace.coordination.position import PositionMove
from tailrace.errors import AlreadyThere, Fenced
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.limits import MAX_ACTIONS
from tailrace.storage.tables import Absent, Action, Add, Delete, Equals, Item, Key, Put, Set, Update

U = TypeVar("U", bound=Ordered)


class Shared(Protocol[U]):
    """Work that members share: where its items are, and which units it has now."""

    @property
    def title(self) -> str:
        """Its name in errors: "group 'billing' of 'orders'"."""

    @property
    def kept_with_member(self) -> Mapping[str, Any]:
        """What a member's item has in addition to its beat and its name."""

    def unit(self, unit: U) -> Key:
        """The key of the item with a unit's owner, epoch and position."""

    def member(self, number: int) -> Key:
        """The key of the item with a member's beat."""

    def named(self, name: str) -> Key:
        """The key of the item that says which member has a name."""

    def units(self) -> Steps[Mapping[U, Item]]:
        """Every unit to work on, with its item; creates missing items."""

    def members(self) -> Steps[Mapping[int, Item]]:
        """Every member's item, by number."""


@dataclass(frozen=True, slots=True)
class Balance(Generic[U]):
    """What a member found when it looked at the group."""

    over: frozenset[U]
    """Units over this member's share, to be released once their handled records are committed."""
    settled: bool
    """Whether it has exactly its share."""
    units: Mapping[U, Item]
    """Every unit, as it was seen."""


class Member(Generic[U]):
    """One member of a group. `held` are its leases by unit, `positions` has the committed position of each."""

    def __init__(
        self,
        shared: Shared[U],
        number: int,
        *,
        name: str | None = None,
        ttl: float = lease.TTL_SECONDS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.shared, self.number, self.ttl = shared, number, ttl
        self.held: dict[U, HeldLease] = {}
        self.positions: dict[U, int] = {}
        self._name, self._wall, self._beats = name, wall, Beats(ttl)
        self._named: HeldLease | None = None
        self._company: frozenset[int] = frozenset()

    # -- coming, living, going
    def enter(self) -> Steps[None]:
        """Become a member of an existing group. `AlreadyThere` if another living member has the same given name."""
        yield from self._appear()
        if self._name is not None:
            yield from self._take_name(self._name)

    def shown(self) -> dict[str, Any]:
        """What this member shows people; each beat writes it."""
        return lease.shown(self._wall(), self.ttl)

    def _appear(self) -> Steps[None]:
        item = {"beat": 0, **self.shared.kept_with_member, "name": self.name}
        put = Put(self.shared.member(self.number), {**item, "shown": self.shown()}, (Absent(),))
        while isinstance((yield from guard.attempt(put)), Unanswered):
            yield from calls.pause(0)

    @property
    def name(self) -> str:
        """Its name: the given one, or its number."""
        return self._name or f"member-{self.number:x}"

    def _take_name(self, name: str) -> Steps[None]:
        key, beats = self.shared.named(name), Beats(self.ttl)
        first: dict[int, int] = {}
        while self._named is None:
            item = yield from guard.read(key)
            if item is None:
                yield from guard.attempt(Put(key, {"owner": NOBODY, "epoch": 0, "name": name}, (Absent(),)))
                continue
            owner = item["owner"]
            before = yield from calls.now()
            holder = yield from guard.read(self.shared.member(owner))
            after = yield from calls.now()
            beats.look({owner: holder["beat"]} if holder else {}, before, after)
            if holder and owner != self.number and first.setdefault(owner, holder["beat"]) != holder["beat"]:
                yield from self._disappear()
                raise AlreadyThere(
                    f"{self.shared.title} has a member {name!r} that lives; give each its own name, or none"
                )
            taken = None
            if lease.takable(item, self.number, holder is None or owner in beats.silent):
                taken = yield from lease.take(key, self.number, item)
            if taken is not None:
                self._named = taken[0]
            else:
                yield from calls.pause(5)

    def beat(self) -> Steps[bool]:
        """MEMBER: raise the beat. A member that was considered dead and removed becomes a member again."""
        raise_it = Update(self.shared.member(self.number), (Add("beat", 1), Set("shown", self.shown())))
        if isinstance((yield from guard.attempt(raise_it)), Refused):
            yield from self._appear()
        return True

    def leave(self) -> Steps[None]:
        """Release everything, and leave the group.  The caller commits first."""
        for unit in list(self.held):
            yield from self.release(unit)
        if self._named is not None:
            yield from lease.release(self._named)
            self._named = None
        yield from self._disappear()

    def _disappear(self) -> Steps[None]:
        while isinstance((yield from guard.attempt(Delete(self.shared.member(self.number)))), Unanswered):
            yield from calls.pause(0)

    # -- sharing
    def share_out(self) -> Steps[Balance[U]]:
        """Look at the group: drop units that another member has taken over, and take free ones that belong to this
        member's share."""
        # Units before members: an owner of a unit was a member before that, so an owner that is no member is gone.
        units = yield from self.shared.units()
        before = yield from calls.now()
        found = yield from self.shared.members()
        after = yield from calls.now()
        self._beats.look({n: item["beat"] for n, item in found.items()}, before, after)
        self._company = frozenset(found)
        live = {n for n in found if n not in self._beats.silent} | {self.number}
        self._drop_lost(units)
        owners = {unit: item["owner"] for unit, item in units.items()}
        share = set(assign(units, live, owners)[self.number])
        for unit in sorted(share - self.held.keys()):
            yield from self._take(unit, units[unit], owners[unit] not in live)
        yield from self._tidy(units, share, found)
        over = frozenset(self.held.keys() - share)
        return Balance(over, not over and share == self.held.keys(), units)

    def has_news(self) -> Steps[bool]:
        """Whether members have come or gone since the last look at the group; costs a small part of such a look."""
        return frozenset((yield from self.shared.members())) != self._company

    def _drop_lost(self, units: Mapping[U, Item]) -> None:
        for unit in [u for u, held in list(self.held.items()) if u not in units or units[u]["epoch"] > held.epoch]:
            self.drop(unit)

    def _take(self, unit: U, item: Item, gone: bool) -> Steps[None]:
        if lease.takable(item, self.number, gone):
            taken = yield from lease.take(self.shared.unit(unit), self.number, item)
            if taken is not None:
                self.held[unit] = taken[0]
                self.took(unit, taken[1])

    def took(self, unit: U, item: Item) -> None:
        """Called when this member has taken a unit; the item says how far the work on it has come."""
        self.positions[unit] = item["position"]

    def _tidy(self, units: Mapping[U, Item], share: set[U], found: Mapping[int, Item]) -> Steps[None]:
        """Release units that this member owns only because of a take whose answer was lost; remove members that are
        gone."""
        for unit, item in units.items():
            if item["owner"] == self.number and unit not in self.held and unit not in share:
                yield from lease.release(HeldLease(self.shared.unit(unit), self.number, item["epoch"]))
        for n in found.keys() & self._beats.silent:
            if n != self.number:
                yield from guard.attempt(Delete(self.shared.member(n), (Equals("beat", found[n]["beat"]),)))

    # -- what it holds
    def commit(self, to: Mapping[U, int], patience: float = guard.PATIENCE) -> Steps[dict[U, Fenced]]:
        """COMMIT: everything before these positions is handled. Drops the units that have a newer owner, and returns
        them."""
        moves = {
            u: PositionMove(self.held[u], self.positions[u], at)
            for u, at in to.items()
            if at > self.positions.get(u, at)
        }
        by_key = {move.held.key: unit for unit, move in moves.items()}
        refused: dict[U, Fenced] = {}
        for start in range(0, len(moves), MAX_ACTIONS):
            fenced = yield from position.commit([*moves.values()][start : start + MAX_ACTIONS], patience)
            refused |= {by_key[key]: error for key, error in fenced.items()}
        for unit in refused:
            self.drop(unit)
        self.positions.update({unit: move.to for unit, move in moves.items() if unit not in refused})
        return refused

    def commit_with(self, unit: U, to: int, also: Sequence[Action], patience: float = guard.PATIENCE) -> Steps[int]:
        """COMMIT with other writes, exactly once; returns the position stored then (see position.commit_with).

        If the unit has a newer owner, the unit is dropped and `Fenced` raised."""
        move = PositionMove(self.held[unit], self.positions[unit], to)
        try:
            self.positions[unit] = yield from position.commit_with(move, also, patience)
        except Fenced:
            self.drop(unit)
            raise
        return self.positions[unit]

    def release(self, unit: U, patience: float = guard.PATIENCE) -> Steps[None]:
        """Release a unit."""
        held = self.held[unit]
        self.drop(unit)
        yield from lease.release(held, patience)

    def drop(self, unit: U) -> None:
        """Forget a unit: another member owns it, or may own it."""
        self.held.pop(unit, None)
        self.positions.pop(unit, None)
