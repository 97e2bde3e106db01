"""Units by name, and the groups that share them: the shards of a change stream, the partitions of the feed.

    $Units-<of>_<group>, number        UNIT: unit, era, owner, epoch, position, and what its kind keeps
    $Units-<of>_<group>, 2^63-1        era, group, what, and where the group began; or era, gone: it was deleted
    $UnitMember-<of>_<group>, number   beat, name, shown{}: a process life that works for the group
    $UnitName-<of>_<group>, number     owner, epoch, name: the member that goes by a name given to it
    $UnitGroups, number                of, group, what: for listing

A unit's number is derived from its name.  Its position counts commits: whatever else changes with a commit changes in
the same write, under the fence of owner, epoch and position.  A group that is reset or made again gets a higher era,
and units of an earlier era are removed before those of the new one are made, under higher epochs: so a commit from the
former era is refused, however late it lands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.coordination import guard
from tailrace.coordination.guard import Refused
from tailrace.coordination.lease import NOBODY, TTL_SECONDS, Beats
from tailrace.errors import Conflict, UnknownGroup
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import LAST, Absent, Action, Check, Delete, Equals, Item, Key, Put, Regardless

GROUPS = "$UnitGroups"
ERA_BITS = 32
"""The epochs of an era are above those of every earlier era: a unit would have to be taken 2^32 times to break that."""
MAX_UNITS_PER_WRITE = 90
MAX_NAMED = 10
"""The most groups that an error names when the one that was asked for does not exist."""


def number_of(name: str) -> int:
    """The number that stands for a unit's name in a key."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Units:
    """The units that one group shares."""

    of: str
    """The id of what is shared: letters and digits, different for each table's stream."""
    group: str
    what: str
    """Its name for people: "table 'User'"."""

    @property
    def title(self) -> str:
        """The group as errors name it."""
        return f"group {self.group!r} of {self.what}"

    @property
    def kept_with_member(self) -> Mapping[str, Any]:
        """Nothing: the members of one group are listed together anyway."""
        return {}

    @property
    def hash_key(self) -> str:
        """The hash key of its units."""
        return f"$Units-{self.of}_{self.group}"

    @property
    def key(self) -> Key:
        """The key of the item that says the group exists."""
        return Key(self.hash_key, LAST)

    def unit(self, unit: str) -> Key:
        """The key of the item with a unit's owner and position."""
        return Key(self.hash_key, number_of(unit))

    def member(self, number: int) -> Key:
        """The key of the item with a member's beat."""
        return Key(f"$UnitMember-{self.of}_{self.group}", number)

    def named(self, name: str) -> Key:
        """The key of the item that says which member has a name."""
        return Key(f"$UnitName-{self.of}_{self.group}", number_of(name))

    def members(self) -> Steps[Mapping[int, Item]]:
        """Every member's item of the group, by number."""
        return {item["i"]: item for item in (yield from guard.read_all(self.member(0).p))}

    # -- the group
    def there(self) -> Steps[Item | None]:
        """The group's own item; None if the group does not exist."""
        item = yield from guard.read(self.key)
        return None if item is None or item.get("gone") else item

    def found(self) -> Steps[Item]:
        """The group's own item; `UnknownGroup` if the group does not exist."""
        item = yield from self.there()
        if item is None:
            others = [one.group for one in (yield from groups()) if one.of == self.of]
            known = f"there are: {', '.join(others[:MAX_NAMED])}" if others else "its first consumer makes it"
            raise UnknownGroup(f"there is no {self.title}; {known}")
        return item

    def make(self, kept: Callable[[], Steps[Mapping[str, Any]]]) -> Steps[Item]:
        """The group's own item, made if it is missing; `kept` says where a new group begins."""
        fresh: Mapping[str, Any] | None = None
        while (item := (yield from self.there())) is None:
            fresh = (yield from kept()) if fresh is None else fresh
            yield from self._begin_era(fresh, (yield from guard.read(self.key)))
        return item

    def begin_again(self, kept: Mapping[str, Any]) -> Steps[None]:
        """Begin a new era of the group; members at work are fenced."""
        while True:
            item = yield from self.found()
            if isinstance((yield from self._begin_era(kept, item)), guard.Written):
                break
            after = yield from self.found()
            if after["era"] > item["era"]:  # by this attempt or another one, the group has begun again
                break
        yield from self.sweep()

    def _begin_era(self, kept: Mapping[str, Any], before: Item | None) -> Steps[guard.Outcome]:
        era = before["era"] + 1 if before is not None else 1
        item = {"era": era, "group": self.group, "what": self.what, **kept}
        put = Put(self.key, item, (Equals("era", era - 1),) if before is not None else (Absent(),))
        listed = {"of": self.of, "group": self.group, "what": self.what}
        return (yield from guard.attempt(put, Put(self._listing, listed, (Regardless(),))))

    @property
    def _listing(self) -> Key:
        return Key(GROUPS, number_of(f"{self.of}_{self.group}"))

    def delete(self) -> Steps[None]:
        """Remove the group and its progress; its item stays, so that a commit under way cannot mistake a new group for
        this one."""
        while (item := (yield from self.there())) is not None:
            gone = Put(self.key, {"era": item["era"] + 1, "gone": True}, (Equals("era", item["era"]),))
            yield from guard.attempt(gone, Delete(self._listing, (Regardless(),)))
        yield from self.sweep()
        for number in (yield from self.members()):
            yield from guard.attempt(Delete(self.member(number), (Regardless(),)))

    def sweep(self) -> Steps[None]:
        """Remove the units of eras before the present one."""
        while True:
            group = yield from guard.read(self.key)
            items = yield from guard.read_all(self.hash_key, 0, LAST - 1)
            old = [item for item in items if group is not None and item["era"] < group["era"]][:MAX_UNITS_PER_WRITE]
            if not old:
                return
            yield from guard.attempt(*(Delete(Key(self.hash_key, i["i"]), (Equals("epoch", i["epoch"]),)) for i in old))

    # -- its units
    def everything(self, era: int) -> Steps[dict[str, Item]]:
        """Every unit of an era, also those that have ended, with its item."""
        items = yield from guard.read_all(self.hash_key, 0, LAST - 1)
        if any(item["era"] < era for item in items):
            yield from self.sweep()  # a reset or a deletion was cut off
        return {item["unit"]: item for item in items if item["era"] == era}

    def units(self) -> Steps[Mapping[str, Item]]:
        """Every unit that has work left."""
        group = yield from self.found()
        return {
            unit: item for unit, item in (yield from self.everything(group["era"])).items() if not item.get("ended")
        }

    def add(self, era: int, unit: str, kept: Mapping[str, Any], *also: Action) -> Steps[bool]:
        """Make a unit, if the group is still in this era and the other actions can be done; False if not."""
        fresh = {"unit": unit, "era": era, "owner": NOBODY, "epoch": era << ERA_BITS, "position": 0, **kept}
        here = Check(self.key, (Equals("era", era),))
        outcome = yield from guard.attempt(Put(self.unit(unit), fresh, (Absent(),)), here, *also)
        return not isinstance(outcome, Refused)

    def remove(self, item: Item) -> Steps[None]:
        """Remove a unit that has ended for good, unless its position has moved since."""
        when = (Equals("epoch", item["epoch"]), Equals("position", item["position"]))
        yield from guard.attempt(Delete(Key(self.hash_key, item["i"]), when))

    # -- operators
    def refuse_active(self, ttl: float = TTL_SECONDS) -> Steps[None]:
        """Raise `Conflict` while a member lives.  Waits up to `ttl` for a beat to move, since the clocks of other hosts
        cannot be trusted."""
        beats, first = Beats(ttl), dict[int, int]()
        while True:
            before = yield from calls.now()
            found = yield from self.members()
            seen = {n: item["beat"] for n, item in found.items()}
            beats.look(seen, before, (yield from calls.now()))
            first = first or seen
            if moved := [found[n]["name"] for n, beat in seen.items() if first.get(n) != beat]:
                raise Conflict(f"{self.title} has active members: {', '.join(moved)}; stop them, or force it")
            if beats.silent >= seen.keys():
                return
            yield from calls.pause(5)


def groups() -> Steps[list[Units]]:
    """Every group that exists."""
    items = yield from guard.read_all(GROUPS)
    found = [Units(item["of"], item["group"], item["what"]) for item in items]
    return sorted(found, key=lambda one: (one.what, one.group))
