"""Sharing of a stream's shards by the consumers of a group: which shards can be begun, how far each was read, and when
one is let go.

    UNIT (see coordination.units)    unit: the shard; place{}: where in it, as in a token; asked: when the shard was
                                     last read, by the service's clock, in seconds; ended, trimmed; records: how many
                                     were handled
    the group's own item             table, stream; begin[]: the places, or since: the time, at which the group began

Order follows descent.  A shard becomes a unit when its parent's unit has ended, in one transaction that checks so, or
when its parent is not listed (any more).  Everything before a unit in its line was read: so "latest" and a token apply
to the shards in `begin`, and never to their children.  A unit that has ended stays until the service does not list its
shard any more: then no member can begin it again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from tailrace.coordination.rules import in_force
from tailrace.coordination.source import UnitWrite
from tailrace.coordination.units import Units
from tailrace.errors import BadInput, NotThere, PositionLost
from tailrace.storage.calls import Steps
from tailrace.storage.changes import Change, Changes, Shard
from tailrace.storage.tables import Absent, Action, Check, Equals, Item, Set
from tailrace.storage.tables import Change as Changed
from tailrace.streams.lineage import Lineage
from tailrace.streams.shard import KEPT_SECONDS, Ask, ShardReader, untouched
from tailrace.streams.start import bad_start, check_age, latest_places, second_of
from tailrace.streams.token import ShardPlace, decode
from tailrace.streams.writing import Transaction

log = logging.getLogger("tailrace")

PAGE = 1000
"""Changes in one read of a shard, at most."""
REFRESH_SECONDS = 3600
"""Seconds after which a place that has not moved is written again, to say that nothing was missed so far."""
MAX_BEGIN = 2000
"""The most places that fit into a group's item."""


def units_of(table: str, group: str) -> Units:
    """Return the units of a group that shares a table's stream."""
    return Units(hashlib.sha256(table.encode()).hexdigest()[:24], group, f"table {table!r}")


def beginning(changes: Changes, ask: Ask, table: str, position: Any) -> dict[str, Any]:
    """Return the part of the group's own item that says where the group begins."""
    now, lineage = changes.time(), Lineage()
    lineage.look(ask(changes.shards))
    places: Sequence[ShardPlace] = ()
    since = None
    match position:
        case "trim_horizon":
            pass
        case "latest":
            places = latest_places(lineage, changes, ask, now)
        case datetime():
            second = second_of(position)
            if second > now:
                places = latest_places(lineage, changes, ask, now)
            else:
                since = second * 1000
        case Mapping():
            token = decode(position, table, changes.stream)
            lineage.resume(token.shards)
            check_age(token, now, lineage.shards, changes, ask)
            for shard in (place.shard for place in token.shards if place.shard not in lineage.shards):
                log.warning("shard %s of table %s was trimmed; the group begins with its children", shard, table)
            places = token.shards
        case _:
            raise bad_start(position)
    if len(places) > MAX_BEGIN:
        raise BadInput(
            f'{len(places)} shards are too many to begin a group in their middle; start it at "trim_horizon"'
        )
    begin = [msgspec.to_builtins(place) for place in places]
    return {"table": table, "stream": changes.stream, "begin": begin, "since": since, "asked": int(now)}


def ready(
    shards: Iterable[Shard], items: Mapping[str, Item], begin: Mapping[str, ShardPlace], since: int | None
) -> list[ShardPlace]:
    """Return the places of shards that can become units: everything older in their lines was read.  Pure."""
    listed = {shard.id: shard for shard in shards}
    parents = {unit: place_of(item).parent for unit, item in items.items()} | {
        p.shard: p.parent for p in begin.values()
    }
    read = _ancestors(parents, listed) | {unit for unit, item in items.items() if item.get("ended")}
    found = []
    for shard in listed.values():
        if shard.id in items or shard.id in read:
            continue
        parent = shard.parent
        if shard.id in begin:
            found.append(begin[shard.id])
        elif parent is None or (parent not in listed and parent not in items):
            found.append(ShardPlace(shard.id, parent, since=since))
        elif parent in read:
            found.append(ShardPlace(shard.id, parent, since=_passed_on(items.get(parent))))
    return found


def _ancestors(parents: Mapping[str, str | None], listed: Mapping[str, Shard]) -> set[str]:
    found: set[str] = set()
    line = list(parents.values())
    while line:
        parent = line.pop()
        if parent is not None and parent not in found:
            found.add(parent)
            line.append(listed[parent].parent if parent in listed else parents.get(parent))
    return found


def _passed_on(parent: Item | None) -> int | None:
    """The time before which a child must pass over changes, because its parent ended before it came to a young one."""
    if parent is None:
        return None
    place = place_of(parent)
    return None if place.latest else place.since


def place_of(item: Item) -> ShardPlace:
    """Return the place in a shard's item that the group's members share."""
    return msgspec.convert(item["place"], ShardPlace)


class ShardSource:
    """A table's stream as a `UnitSource` for the members of a group."""

    fatal: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        changes: Changes,
        table: str,
        group: str,
        make: Callable[[Change], Any],
        ask: Ask,
        *,
        page: int = PAGE,
        writes: Callable[[Any], list[UnitWrite]] = lambda _: [],
    ) -> None:
        self.units = units_of(table, group)
        self.changes, self.table, self._make, self._ask, self._page = changes, table, make, ask, page
        self._writes = writes

    def join(self, position: Any) -> Steps[Item]:
        """Return the group's item; creates the group at `position` if there is none."""

        def kept() -> Steps[dict[str, Any]]:
            yield from ()
            return beginning(self.changes, self._ask, self.table, position)

        item = yield from self.units.make(kept)
        self._check_stream(item)
        return item

    def _check_stream(self, group: Item) -> None:
        if group["stream"] != self.changes.stream:
            raise PositionLost(
                f"{self.units.title} reads another stream of the table than it has now: the stream was switched off "
                "and on again, or the table or the home was made again or copied. What happened in between is in "
                f'neither stream; engine.group({self.table!r}, {self.units.group!r}).reset("trim_horizon") goes on '
                "with what is kept, and the table itself has the present state"
            )

    def look(self) -> Steps[None]:
        """Create units for the shards that can be begun; remove units that ended and whose shards are gone."""
        group = yield from self.units.found()
        self._check_stream(group)
        items = yield from self.units.everything(group["era"])
        # List the shards after reading the units: so a unit whose shard is missing from the list is of a trimmed shard.
        shards = self._listed()
        begin = {place.shard: place for place in msgspec.convert(group["begin"], list[ShardPlace])}
        for place in ready(shards, items, begin, group["since"]):
            kept = {"place": msgspec.to_builtins(place), "asked": int(self.changes.time())}
            yield from self.units.add(group["era"], place.shard, kept, *self._after(place, items, begin))
        there = {shard.id for shard in shards}
        for unit, item in items.items():
            if item.get("ended") and unit not in there:
                yield from self.units.remove(item)
        if shards and all(items.get(unit, {}).get("ended") for unit in there):
            self._check_current()

    def _listed(self) -> list[Shard]:
        """List the shards of the stream; `PositionLost` if the stream is gone."""
        try:
            shards: list[Shard] = self._ask(self.changes.shards)
        except NotThere:  # some servers forget a stream as soon as it is switched off
            self._check_current()
            raise
        return shards

    def _after(self, place: ShardPlace, items: Mapping[str, Item], begin: Mapping[str, ShardPlace]) -> list[Action]:
        """Return the condition under which a shard is begun: its parent's unit has ended, or does not exist."""
        if place.parent is None or place.shard in begin or not in_force("shard.parent"):
            return []
        ended = Equals("ended", True) if place.parent in items else Absent()
        return [Check(self.units.unit(place.parent), (ended,))]

    def _check_current(self) -> None:
        """Raise `PositionLost` if the stream was switched off or replaced, or its table dropped.

        Called when every shard was read to its end and none has a child, and when the service has no such stream."""
        try:
            current = self._ask(self.changes.current)
        except NotThere as error:
            raise PositionLost(
                f"{self.units.title} has nothing to read any more: {error}. If the table was made again, "
                f'engine.group({self.table!r}, {self.units.group!r}).reset("trim_horizon") goes on with its stream'
            ) from error
        if current != self.changes.stream:
            why = "the table has another one by now" if current else "it was switched off; switch it on again"
            raise PositionLost(
                f"{self.units.title} has read the stream to its end, and it goes on no more: {why}. What happened in "
                f'between is in no stream: engine.group({self.table!r}, {self.units.group!r}).reset("trim_horizon") '
                "goes on with the present one; compare with the table itself"
            )

    def open(self, unit: str, item: Item) -> Steps[ShardUnit]:
        """Open a shard at the place in its unit's item."""
        yield from ()
        return ShardUnit(self.changes, place_of(item), item["asked"], self._ask, self._page, self._way_out)

    @property
    def _way_out(self) -> str:
        name = f"engine.group({self.table!r}, {self.units.group!r})"
        return f'{name}.skip(SHARD) goes on with what is left of it, {name}.reset("trim_horizon") with all that is kept'

    def value(self, record: Change) -> Any:
        """Return the change as a record, of the model or with dicts."""
        return self._make(record)

    def writes(self, returned: Any) -> Steps[list[UnitWrite]]:
        """Return the writes in the engine's transaction that a handler returned."""
        yield from ()
        return self._writes(returned)

    def described(self, unit: str, record: Change) -> Mapping[str, Any]:
        """Return a change as a dead letter keeps it."""
        key, images = [record.key.p, record.key.i], {"new": record.new, "old": record.old}
        kept = {name: dict(image) for name, image in images.items() if image is not None}
        at = record.created_at.isoformat()
        return {"id": record.sequence, "kind": record.kind, "key": key, "created_at": at, **kept}


class ShardUnit:
    """One shard, read from a place on; its consumer commits a place as its changes are handled."""

    def __init__(
        self, changes: Changes, place: ShardPlace, asked: int, ask: Ask, page: int = PAGE, way_out: str = ""
    ) -> None:
        self._changes, self._page, self._asked, self._way_out = changes, page, asked, way_out
        self._reader = ShardReader(changes, place, 0, ask, asked=asked)
        self._committed = self._next = place
        self._trimmed = False
        old = place.after is None and changes.time() - asked > KEPT_SECONDS
        if old and not untouched(changes, ask, place.shard):
            raise PositionLost(
                f"nothing of shard {place.shard} was read when its place was written, "
                f"{(changes.time() - asked) / 3600:.0f} hours ago; changes are kept for 24 hours, some may be gone: "
                + way_out.replace("SHARD", repr(place.shard))
            )

    def read(self) -> list[Change]:
        """Return the next changes; an empty list if there are none right now."""
        try:
            self._reader.poll(self._page)
        except NotThere:
            log.warning("shard %s was trimmed before it was read to its end; its children are read", self._reader.shard)
            self._trimmed = True
            return []
        except PositionLost as error:
            raise PositionLost(
                f"changes {self._reader.where} shard {self._reader.shard} were trimmed before they were handled: "
                f"{self._way_out.replace('SHARD', repr(self._reader.shard))}"
            ) from error
        taken = []
        while self._reader.buffer:
            taken.append(self._reader.take())
        return taken

    @property
    def ended(self) -> bool:
        """Whether the shard is closed and was read to its end, or was trimmed."""
        return self._trimmed or self._reader.ended

    @property
    def due(self) -> bool:
        """Whether the place has moved past old changes, or was written long ago."""
        old = self._reader.asked - self._asked > REFRESH_SECONDS
        return not self._trimmed and (old or self._reader.place != self._committed)

    def kept(self, last: Change | None) -> tuple[Changed, ...]:
        """Return what the unit's item stores once `last` is handled: the place behind it; without `last`, the place
        behind everything read."""
        place = self._reader.place
        if last is not None:
            place = ShardPlace(place.shard, place.parent, after=last.sequence)
        self._next, self._asked = place, int(self._reader.asked)
        at = (Set("at", int(last.created_at.timestamp() * 1000)),) if last is not None else ()
        trimmed = (Set("trimmed", True),) if self._trimmed else ()
        return (Set("place", msgspec.to_builtins(place)), Set("asked", self._asked), *at, *trimmed)

    def also(self, last: Change | None) -> Steps[Sequence[Action]]:
        """Return nothing: the place is in the unit's item."""
        yield from ()
        return ()

    def committed(self) -> None:
        """Note that the place from the last call of `kept` is stored."""
        self._committed = self._next

    def close(self) -> None:
        """Do nothing: the unit holds no resources."""


def as_writes(returned: Any) -> list[UnitWrite]:
    """Return what a handler of a change stream returned, as writes that commit with its position; `BadInput` if it is
    no transaction."""
    if returned is None:
        return []
    if isinstance(returned, Transaction):
        return [UnitWrite(table, action) for table, action in returned.parts()]
    raise BadInput(f"a handler returns None or a transaction of the engine (engine.writes()), not {returned!r}")
