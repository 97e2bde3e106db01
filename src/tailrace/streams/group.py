"""Groups of consumers of a change stream, as operators see them: each shard's progress and member, errors, dead
letters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tailrace.coordination import dead_letters, guard
from tailrace.coordination.dead_letters import DeadLetter
from tailrace.coordination.lease import NOBODY, TTL_SECONDS
from tailrace.errors import NotThere, PositionLost, TailraceError
from tailrace.storage.calls import Steps, Store
from tailrace.storage.tables import Action, Add, Equals, Item, Set, Update
from tailrace.streams.patience import Patience
from tailrace.streams.shard import ShardReader
from tailrace.streams.sharing import ShardSource, beginning, place_of
from tailrace.streams.token import ShardPlace

MAX_COUNTED = 10_000
"""Changes to which a shard's lag is counted: the service does not say how many there are, so they are read."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of one shard in a group."""

    shard: str
    member: str | None
    """The member that works on it; None if no member does."""
    handled: int
    """How many of its records were handled."""
    ended: bool
    progress_age: float | None
    """Seconds since a member last made progress in it, or found itself at its end.  While this grows, nothing happens
    in the shard, whatever its member reports."""
    error: str
    """The error that stops it; empty if there is none."""
    behind_records: int
    """Records that are not handled yet, up to 10,000."""
    behind_seconds: float
    """The age of the oldest of these records; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class StreamGroupState:
    """The state of a group: its shards, the names of its members, how many dead letters it has."""

    shards: tuple[ShardState, ...]
    members: tuple[str, ...]
    dead_letters: int

    @property
    def progress_age(self) -> float:
        """The `progress_age` of the shard that has waited longest: the number for an alarm."""
        ages = [shard.progress_age for shard in self.shards if not shard.ended and shard.progress_age is not None]
        return max(ages, default=0.0)

    @property
    def errors(self) -> dict[str, str]:
        """The errors, by shard."""
        return {shard.shard: shard.error for shard in self.shards if shard.error}


class StreamGroup:
    """One group of one table's stream, made by `engine.group(User, "mailer")`."""

    def __init__(self, store: Store, source: ShardSource, patience: Patience) -> None:
        self._store, self._source, self._units, self._patience = store, source, source.units, patience

    def status(self, *, count: bool = True) -> StreamGroupState:
        """Return each shard's member, lag and error; with `count=False` without the lag, which takes reading ahead."""
        group = self._store.run(self._units.found())
        items = self._store.run(self._units.everything(group["era"]))
        members = self._store.run(self._units.members())
        letters = self._store.run(dead_letters.dead_letters(self._units))
        shards = tuple(self._state(item, members, count) for _, item in sorted(items.items()))
        return StreamGroupState(shards, tuple(item["name"] for item in members.values()), len(letters))

    def _state(self, item: Item, members: Mapping[int, Item], count: bool) -> ShardState:
        owner = members.get(item["owner"])
        fares: Mapping[str, Any] = owner["shown"].get("units", {}).get(item["unit"], {}) if owner is not None else {}
        ended, error = bool(item.get("ended")), str(fares.get("error", ""))
        records, seconds = 0, 0.0
        if count and not ended:
            try:
                records, seconds = self._behind(place_of(item), item["asked"])
            except TailraceError as trouble:
                error = error or str(trouble)
        at = fares.get("at") or item["asked"] * 1000
        age = max(0.0, time.time() - at / 1000)
        name = owner["name"] if owner is not None else None
        return ShardState(item["unit"], name, item.get("records", 0), ended, age, error, records, seconds)

    def _behind(self, place: ShardPlace, asked: float) -> tuple[int, float]:
        changes = self._source.changes
        reader, records, oldest = ShardReader(changes, place, 0, self._ask, asked=asked), 0, None
        while records < MAX_COUNTED:
            try:
                reader.poll(1000)
            except PositionLost:
                raise
            except NotThere:
                break
            if not reader.buffer:
                break
            oldest = oldest or reader.buffer[0].created_at.timestamp()
            while reader.buffer:
                reader.take()
                records += 1
        return min(records, MAX_COUNTED), max(0.0, changes.time() - oldest) if oldest is not None else 0.0

    def _ask(self, request: Any) -> Any:
        return self._patience.ask(request, f"the stream of {self._units.what}")

    # -- moving
    def reset(self, position: Any, *, force: bool = False, ttl: float = TTL_SECONDS) -> None:
        """Make the whole group begin again at a position, as a new group would.  Running workers are fenced.

        `Conflict` while it has living members, unless `force`."""
        if not force:
            self._store.run(self._units.refuse_active(ttl))
        kept = beginning(self._source.changes, self._ask, self._source.table, position)
        self._store.run(self._units.begin_again(kept))

    def skip(self, shard: str) -> None:
        """Make the group go on with the oldest change of a shard that is still kept, where earlier ones are lost."""
        self._store.run(self._skip(shard))

    def _skip(self, shard: str) -> Steps[None]:
        group = yield from self._units.found()
        item = (yield from self._units.everything(group["era"])).get(shard)
        if item is None or item.get("ended"):
            raise NotThere(f"{self._units.title} does not work on a shard {shard!r}")
        before, key = place_of(item), self._units.unit(shard)
        kept = msgspec.to_builtins(ShardPlace(shard, before.parent))
        asked = int(self._source.changes.time())
        changes = (Set("owner", NOBODY), Add("epoch", 1), Set("place", kept), Set("asked", asked))

        def plan(now: Item | None) -> tuple[Action, ...] | None:
            if now is None or (now["place"] == kept and now["asked"] >= asked):
                return None
            return (Update(key, changes, (Equals("epoch", now["epoch"]),)),)

        yield from guard.settle(key, plan)

    def delete(self, *, force: bool = False, ttl: float = TTL_SECONDS) -> None:
        """Remove the group and its places; its dead letters stay.  `Conflict` while a member lives, unless `force`."""
        self._store.run(self._units.found())
        if not force:
            self._store.run(self._units.refuse_active(ttl))
        self._store.run(self._units.delete())

    # -- dead letters
    def dead_letters(self) -> list[DeadLetter]:
        """The records that the handler failed to handle, oldest first."""
        return self._store.run(dead_letters.dead_letters(self._units))

    def settle(self, number: int) -> None:
        """Remove a dead letter that an operator has dealt with."""
        self._store.run(dead_letters.settle(self._units, number))
