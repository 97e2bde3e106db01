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


class Read(NamedTuple):
    """What an iterator gave.  `next` is None when a closed shard is exhausted."""

    changes: list[Change]
    next: str | None


class Changes(Protocol):
    """What every table with change capture offers.  Calls block and may come from any thread."""

    def shards(self) -> list[Shard]:
        """All shards that are still kept, parents before children."""

    def iterator(self, shard: str, start: Start, sequence: str | None = None) -> str:
        """A place in a shard.  Valid for 15 minutes; `NotThere` for a trimmed or unknown shard or sequence."""

    def read(self, iterator: str, limit: int = 1000) -> Read:
        """The next changes at an iterator, perhaps none, and where to go on."""
