"""Changes: what happened to a table's items, in the shape of DynamoDB Streams.

Switched on per table.  A stream has shards with parents; a shard is read through iterators, in order.  A change of one
item is in the stream once, and changes of one item are in the order they happened.  A transaction's changes are not
shown together.  Records are kept for 24 hours.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tailrace.storage.tables import Item, Key

View: TypeAlias = Literal["keys", "new", "old", "both"]
Start: TypeAlias = Literal["TRIM_HORIZON", "LATEST", "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]


class Shard(NamedTuple):
    """A piece of a stream.  `last` is None while it is open."""

    id: str
    parent: str | None
    first: str
    last: str | None


class Change(NamedTuple):
    """One change of one item; parts that the view leaves out are None."""

    id: str
    kind: Literal["INSERT", "MODIFY", "REMOVE"]
    sequence: str
    created_at: datetime
    key: Key
    new: Item | None
    old: Item | None
    version: str = "1.1"


class Read(NamedTuple):
    """What a read at an iterator returned.  `next` is None when a closed shard is exhausted."""

    changes: list[Change]
    next: str | None


class Changes(Protocol):
    """What every table with change capture offers.  Calls block and may come from any thread."""

    @property
    def stream(self) -> str:
        """Which stream this is: a table whose capture is switched off and on again gets another."""

    def current(self) -> str | None:
        """Which stream the table has now, None for none; `NotThere` if the table is gone."""

    def time(self) -> float:
        """The clock that `created_at` is taken from, as far as it is known: seconds since 1970, never ahead of it."""

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard.  Valid for 15 minutes.  `Trimmed` for a sequence that the shard does not have (any more),
        `NotThere` for a shard that is not there (any more)."""

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """The end of a shard as an exact place that stays valid, where the backend knows one; else "LATEST"."""

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on.  `IteratorExpired` after 15 minutes,
        `Trimmed` if the changes there are no longer kept, `NotThere` if the shard is gone."""


class ForwardedChanges:
    """The `Changes` of others, passed on as they are; a subclass alters some of it."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    @property
    def stream(self) -> str:
        """The same stream."""
        return self._changes.stream

    def current(self) -> str | None:
        """Which stream the table has now."""
        return self._changes.current()

    def time(self) -> float:
        """The service's clock."""
        return self._changes.time()

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """The end of a shard."""
        return self._changes.latest(shard)

    def shards(self) -> list[Shard]:
        """All shards."""
        return self._changes.shards()
