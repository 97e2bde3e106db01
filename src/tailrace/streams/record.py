"""Records of a change stream, whose parts are read by name or by attribute: `record["new"]` and `record.new`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from tailrace.storage.changes import Change

T = TypeVar("T")

Kind: TypeAlias = Literal["insert", "modify", "remove"]
KINDS: dict[str, Kind] = {"INSERT": "insert", "MODIFY": "modify", "REMOVE": "remove"}
"""The names of the kinds of change in storage, and in records."""


class Named(Struct, frozen=True):
    """A struct whose fields can also be read as items: `record["new"]`."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class EventInfo(Named, frozen=True, gc=False):
    """The kind of a change, and its id."""

    id: str
    type: Kind
    version: str


class Meta(Named, frozen=True, gc=False):
    """When a change happened, and its place in its shard."""

    created_at: datetime
    sequence_number: str
    event: EventInfo


class Record(Named, Generic[T], frozen=True):
    """One change of one item.  Parts that the table's stream leaves out are None."""

    key: dict[str, Any]
    new: T | None
    old: T | None
    meta: Meta


def meta_of(change: Change) -> Meta:
    """Return what a change says besides its items."""
    return Meta(change.created_at, change.sequence, EventInfo(change.id, KINDS[change.kind], change.version))
