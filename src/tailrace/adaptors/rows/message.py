"""Messages: what a pipeline carries, one at a time, as functions in plain Python see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tailrace.log.record import Mode, Op


class Place(NamedTuple):
    """Where a change stands; None: not known.

    `partition` and `offset` are its place in the pipeline's commit log: of changes of one partition, and so of one
    document, the higher offset came later.  `transaction` numbers the source's transactions in the order in which they
    were committed, `position` the changes of one: sorted by both, all changes are in the source's own order."""

    partition: int | None = None
    offset: int | None = None
    transaction: int | None = None
    position: int | None = None


NOWHERE = Place()


@dataclass(slots=True)
class Message:
    """One change of one document.

    `namespace` is the table, collection or file it belongs to, `id` the text of its primary key, `data` its fields by
    name.  A field that is not in `data` is unset, which is not the same as None: of a whole document it is not there,
    of a change it is as it was."""

    op: Op
    namespace: str
    id: str
    data: dict[str, Any]
    timestamp: int = 0
    mode: Mode = Mode.SYNC
    keys: tuple[str, ...] = field(default=())
    """The names of the fields that make up the id."""
    whole: bool = True
    """Whether it is a whole document; else a change that leaves fields as they are."""
    removed: tuple[str, ...] = ()
    """Fields that the change takes away, nested ones too, as JSON Pointers: "/address/street"."""
    place: Place = NOWHERE
    """Where it stands.  A function may read it; whatever message it gives stands where the one it got did."""
