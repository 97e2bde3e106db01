"""Messages: what a pipeline carries, one at a time, as functions in plain Python see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tailrace.log.record import Mode, Op


@dataclass(slots=True)
class Message:
    """One change of one document.

    `namespace` is the table, collection or file it belongs to, `id` the text of its primary key, `data` its fields by
    name.  A field that is not in `data` is unset (the source did not send it), which is not the same as None."""

    op: Op
    namespace: str
    id: str
    data: dict[str, Any]
    timestamp: int = 0
    mode: Mode = Mode.SYNC
    keys: tuple[str, ...] = field(default=())
    """The names of the fields that make up the id."""
