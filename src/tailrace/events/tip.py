"""Tips: a stream's newest events, how an append and a prune change them, and when they calve.  Pure.

    <stream>, 2147483647    the Tip: e, c, u, a, n, etag, b as in the document; k: crc32c of its events, from `seed` on;
                            floor: the lowest index that is not pruned, once something is
    <stream>, index         a calf: e, c, n, k; its key is the index of its first event; never changes

The first event in any item has the index n - len(e).  The Tip is written by appends under `n` and `etag`, each with a
new etag; `floor` alone is raised without one, before the calves below it are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from tailrace.coordination.rules import rules
from tailrace.errors import BadSetting, Damaged, TooLarge
from tailrace.events.event import Event
from tailrace.events.payload import Compression
from tailrace.events.stored import (
    Stored,
    at_version,
    chained,
    check_unfold,
    events_size,
    read_events,
    read_unfolds,
    seed,
    stored_event,
    stored_unfold,
    unfolds_size,
)
from tailrace.storage.limits import MAX_ITEM_BYTES, item_size
from tailrace.storage.tables import Absent, Action, Append, Change, Condition, Equals, Item, Key, Put, Set, Update

TIP = 2**31 - 1
"""The range key of a Tip; calves have smaller ones."""
_MAX_OVERHEAD_BYTES_PER_EVENT = 256
"""An upper bound of the bytes that an item counts for an event in addition to the document's estimate."""


@dataclass(frozen=True, slots=True)
class TipLimits:
    """When a Tip calves: when the new events would take it over any of these limits."""

    max_events: int | None = None
    max_event_bytes: int = 32 * 1024
    max_bytes: int = 32 * 1024

    def __post_init__(self) -> None:
        for name in "max_events", "max_event_bytes", "max_bytes":
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise BadSetting(f"{name} of an event store is a number from 1, not {value!r}")

    def exceeded(self, events: int, event_bytes: int, unfold_bytes: int) -> bool:
        """Whether a Tip with this much must calve."""
        return (
            (self.max_events is not None and events > self.max_events)
            or event_bytes > self.max_event_bytes
            or event_bytes + unfold_bytes > self.max_bytes
        )


class NewEvents(Struct, frozen=True):
    """The events and unfolds of one append, as they will be stored."""

    events: list[dict[str, Any]]
    types: list[str]
    unfolds: list[dict[str, Any]]
    bytes: int
    unfold_bytes: int

    @classmethod
    def of(
        cls, events: Sequence[Event], unfolds: Sequence[Event], how: Compression, time: str, new_id: Callable[[], str]
    ) -> NewEvents:
        """Encode events and unfolds."""
        id = new_id()
        new = [stored_event(event, event.id or f"{id}.{n}", time, how) for n, event in enumerate(events)]
        types = [event.type for event in events]
        new_unfolds = [stored_unfold(unfold, time, how) for unfold in unfolds]
        return cls(new, types, new_unfolds, events_size(types, new), unfolds_size(new_unfolds))

    @property
    def ids(self) -> list[str]:
        """The ids of its events."""
        return [one["id"] for one in self.events]


class Tip(Struct, frozen=True):
    """A stream as its Tip shows it; a stream that does not exist has no events and version 0.

    `version` (stored as `n`) is how many events the stream has had, and the index of the next."""

    stream: str
    version: int = 0
    etag: str | None = None
    calved_bytes: int = 0
    """Stored as `b`: the size of all events that were calved."""
    stored_events: Sequence[Stored] = ()
    """Stored as `e`."""
    types: Sequence[str] = ()
    """Stored as `c`: the type of each event."""
    stored_unfolds: Sequence[Stored] = ()
    """Stored as `u`."""
    checksum: int | None = None
    """Stored as `k`: the crc32c of its events."""
    floor: int = 0
    """The lowest index that is not pruned."""
    exists: bool = False
    size: int = -1

    def events(self) -> list[Event]:
        """The events in it, oldest first."""
        return read_events(self.stream, self.types, self.stored_events, self.first)

    def unfolds(self) -> list[Event]:
        """The unfolds of the last write."""
        return read_unfolds(self.stream, self.stored_unfolds)

    @property
    def first(self) -> int:
        """The index of the first event in it."""
        return self.version - len(self.stored_events)

    @property
    def bytes(self) -> int:
        """The size of its events."""
        return self.size if self.size >= 0 else events_size(self.types, self.stored_events)

    @classmethod
    def of(cls, stream: str, item: Item | None) -> Tip:
        """A Tip as it was stored (None: there is none), its checksum verified."""
        if item is None:
            return cls(stream)
        if check_batch(stream, item) < 0 or item["i"] != TIP:
            raise damaged(stream, 0, f"the Tip says that it is item {item['i']}")
        floor, etag, b, k = item.get("floor", 0), item.get("etag"), item.get("b", 0), item.get("k")
        tip = cls(stream, item["n"], etag, b, item["e"], item["c"], item["u"], k, floor, True)
        if not isinstance(floor, int) or not 0 <= floor <= tip.first:
            raise damaged(stream, tip.first, f"its floor is {floor!r}")
        for unfold in tip.stored_unfolds:
            check_unfold(stream, unfold)
        return tip


def damaged(stream: str, index: int, why: str) -> Damaged:
    """The error for a stored Tip or calf that cannot be what was written."""
    return Damaged(
        f"the item of stream {stream!r} with event {index} is not what was written: {why}; restore it from a backup",
        where=stream,
        position=index,
    )


def check_batch(stream: str, item: Item) -> int:
    """Refuse an item whose events cannot be those that were written; returns the index of the first."""
    first = 0
    try:
        e, c, i = item["e"], item["c"], item["i"]
        if item["p"] != stream or not isinstance(i, int):
            raise ValueError(f"it says that it is {item['p']!r}/{i!r}")
        if not isinstance(e, list) or not isinstance(c, list) or (i == TIP and not isinstance(item["u"], list)):
            raise ValueError("a list is missing")
        first = int(item["n"] - len(e))
        if len(e) != len(c) or first < 0 or (i != TIP and (first != i or not e)):
            raise ValueError(f"it has {len(e)} events and {len(c)} types, up to {item['n']}")
        if "k" in item and item["k"] != chained(seed(stream, first), c, e):
            raise ValueError("its checksum differs")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(stream, first, repr(error)) from error
    return first


def tip_key(stream: str) -> Key:
    """The key of a stream's Tip."""
    return Key(stream, TIP)


def as_seen(tip: Tip) -> tuple[Condition, ...]:
    """The condition that no process has written the stream since this Tip was read."""
    if not tip.exists:
        return (Absent(),)
    etag = Equals("etag", tip.etag) if tip.etag is not None else Absent("etag")
    return rules({"events.n": Equals("n", tip.version), "events.etag": etag})


def plan(tip: Tip, batch: NewEvents, limits: TipLimits, etag: str) -> tuple[tuple[Action, ...], Tip]:
    """The writes that append a batch to a stream as seen, the Tip's first; and the Tip that they make."""
    n = tip.version + len(batch.events)
    if n >= TIP:
        raise TooLarge(f"stream {tip.stream!r} would have {n:,} events; a stream has at most {TIP - 1:,}")
    u = [at_version(one, n) for one in batch.unfolds]
    joined = _joined(tip, batch, u, n, etag)
    fits = _fits(joined)
    if (
        batch.events
        and tip.stored_events
        and (not fits or limits.exceeded(len(joined.stored_events), joined.bytes, batch.unfold_bytes))
    ):
        return _calve(tip, batch, u, n, etag)
    if not fits:
        raise _too_large(joined)
    if not tip.exists:
        return (Put(tip_key(tip.stream), _item(joined, len(batch.events)), (Absent(),)),), joined
    changes: list[Change] = [Set("n", n), Set("etag", etag), Set("a", len(batch.events)), Set("u", u)]
    if batch.events:
        changes += [Append("e", batch.events), Append("c", batch.types)]
        if joined.checksum is not None:
            changes.append(Set("k", joined.checksum))
    return (Update(tip_key(tip.stream), tuple(changes), as_seen(tip)),), joined


def _joined(tip: Tip, batch: NewEvents, u: list[dict[str, Any]], n: int, etag: str) -> Tip:
    before = tip.checksum if tip.exists else seed(tip.stream, 0)
    k = None if before is None else chained(before, batch.types, batch.events)
    e, c, size = [*tip.stored_events, *batch.events], [*tip.types, *batch.types], tip.bytes + batch.bytes
    return Tip(tip.stream, n, etag, tip.calved_bytes, e, c, u, k, tip.floor, True, size)


def _calve(tip: Tip, batch: NewEvents, u: list[dict[str, Any]], n: int, etag: str) -> tuple[tuple[Action, ...], Tip]:
    """One transaction: everything in the Tip moves into a calf, and everything new goes to the Tip."""
    k = chained(seed(tip.stream, tip.version), batch.types, batch.events)
    after = Tip(
        tip.stream, n, etag, tip.calved_bytes + tip.bytes, batch.events, batch.types, u, k, tip.floor, True, batch.bytes
    )
    if not _fits(after):
        raise _too_large(after)
    changes = {name: value for name, value in _item(after, len(batch.events)).items() if name != "floor"}
    calf: dict[str, Any] = {"e": list(tip.stored_events), "c": list(tip.types), "n": tip.version}
    if tip.checksum is not None:
        calf["k"] = tip.checksum
    return (
        Update(tip_key(tip.stream), tuple(Set(name, value) for name, value in changes.items()), as_seen(tip)),
        Put(Key(tip.stream, tip.first), calf, (Absent(),)),
    ), after


def _item(tip: Tip, appends: int) -> dict[str, Any]:
    item = {
        "n": tip.version,
        "etag": tip.etag,
        "a": appends,
        "b": tip.calved_bytes,
        "e": tip.stored_events,
        "c": tip.types,
        "u": tip.stored_unfolds,
        "k": tip.checksum,
    }
    return {**item, "floor": tip.floor} if tip.floor else item


def _fits(tip: Tip) -> bool:
    roughly = (
        tip.bytes
        + unfolds_size(tip.stored_unfolds)
        + _MAX_OVERHEAD_BYTES_PER_EVENT * (len(tip.stored_events) + len(tip.stored_unfolds) + 1)
        + 4 * len(tip.stream)
    )
    return roughly <= MAX_ITEM_BYTES or _size(tip) <= MAX_ITEM_BYTES


def _size(tip: Tip) -> int:
    return item_size({**_item(tip, len(tip.stored_events)), "p": tip.stream, "i": TIP, "floor": tip.floor})


def _too_large(tip: Tip) -> TooLarge:
    return TooLarge(
        f"an append to stream {tip.stream!r} would make an item of {_size(tip):,} bytes; the limit is "
        f"{MAX_ITEM_BYTES:,}: append less at once, or keep large data in objects"
    )


def trim(tip: Tip, until: int, etag: str) -> tuple[Action, ...]:
    """The write that removes the Tip's events up to an index, that one included."""
    gone = until + 1 - tip.first
    e, c, floor = list(tip.stored_events[gone:]), list(tip.types[gone:]), until + 1
    k = chained(seed(tip.stream, floor), c, e)
    changes = {"e": e, "c": c, "etag": etag, "a": 0, "floor": floor, "k": k}
    return (Update(tip_key(tip.stream), tuple(Set(name, value) for name, value in changes.items()), as_seen(tip)),)
