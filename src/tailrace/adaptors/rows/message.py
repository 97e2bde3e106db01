"""Messages: the changes that a pipeline carries, one at a time, as functions in plain Python see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tailrace.log.record import Mode, Op


class Place(NamedTuple):
    """The place of a change; None where a part is not known.

    `partition` and `offset` are the change's place in the pipeline's commit log.  Of two changes in one partition, and
    so of two changes of one document, the one with the higher offset came later.  `transaction` numbers the source's
    transactions in the order of their commits, and `position` the changes within one transaction: sorted by both,
    changes are in the source's own order."""

    partition: int | None = None
    offset: int | None = None
    transaction: int | None = None
    position: int | None = None


NOWHERE = Place()


@dataclass(slots=True)
class Message:
    """One change of one document.

    `namespace` is the table, collection or file that the document belongs to, `id` the text of its primary key, and
    `data` its fields by name.  A field that is not in `data` is unset, which is not the same as None: a whole document
    does not have the field, and a change leaves it as it is."""

    op: Op
    namespace: str
    id: str
    data: dict[str, Any]
    timestamp: int = 0
    mode: Mode = Mode.SYNC
    keys: tuple[str, ...] = field(default=())
    """The names of the fields that make up the id."""
    whole: bool = True
    """Whether the message has the whole document; if not, it is a change that leaves fields as they are."""
    removed: tuple[str, ...] = ()
    """The fields that the change removes, nested ones too, as JSON Pointers: "/address/street"."""
    place: Place = NOWHERE
    """The place of the change.  A function may read it; each message that the function returns gets the place of the
    message that it was given."""
