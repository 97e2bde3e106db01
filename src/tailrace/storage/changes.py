"""Changes: the changes of a table's items, in the shape of DynamoDB Streams.

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
        """The id of this stream: a table whose capture is switched off and on again gets another stream."""

    def current(self) -> str | None:
        """The id of the stream that the table has now, or None; `NotThere` if the table is gone."""

    def time(self) -> float:
        """The time by the clock that sets `created_at`, as far as it is known: seconds since 1970, never ahead of that
        clock."""

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard.  Valid for 15 minutes.  `Trimmed` for a sequence that the shard does not have (or no
        longer has), `NotThere` for a shard that does not exist (or no longer exists)."""

    def latest(self, shard: str) -> tuple[Start, str | None]:
        """The end of a shard, as an exact place that stays valid if the backend knows one; else "LATEST"."""

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on.  `IteratorExpired` after 15 minutes,
        `Trimmed` if the changes there are no longer kept, `NotThere` if the shard is gone."""


class ForwardedChanges:
    """Passes all calls on to another `Changes`; a subclass alters some of them."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    @property
    def stream(self) -> str:
        """The same stream."""
        return self._changes.stream

    def current(self) -> str | None:
        """The id of the stream that the table has now."""
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
