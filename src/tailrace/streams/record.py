"""Records: what a change stream gives, by name or by attribute: `record["new"]` and `record.new`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from tailrace.storage.changes import Change

T = TypeVar("T")


class Named:
    """Lets fields be read as items, too."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise KeyError(name)
        return getattr(self, name)


@dataclass(frozen=True, slots=True)
class EventInfo(Named):
    """What kind of change it was, and its id."""

    id: str
    type: Literal["insert", "modify", "remove"]
    version: str


@dataclass(frozen=True, slots=True)
class Meta(Named):
    """When a change happened, and where it stands in its shard."""

    created_at: datetime
    sequence_number: str
    event: EventInfo


@dataclass(frozen=True, slots=True)
class Record(Named, Generic[T]):
    """One change of one item.  Parts that the table's stream leaves out are None."""

    key: dict[str, Any]
    new: T | None
    old: T | None
    meta: Meta


def meta_of(change: Change) -> Meta:
    """What is known about a change beside the item."""
    kind: Any = change.kind.lower()
    return Meta(change.created_at, change.sequence, EventInfo(change.id, kind, change.version))
