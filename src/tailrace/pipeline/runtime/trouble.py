"""Trouble: what kept a message, or a whole share, from being delivered (see coordination.failure for what follows)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.coordination.failure import Cause, cause_of, said
from tailrace.errors import TailraceError


@dataclass(slots=True)
class Trouble:
    """A message, or a whole share, that could not be delivered; it can be pickled."""

    error: str
    cause: Cause = "data"
    partition: int = -1
    offset: int = -1
    namespace: str = ""
    id: str = ""


class Stuck(TailraceError):
    """A writer has stopped; the operator's help is needed."""


def trouble_of(error: BaseException) -> Trouble:
    """An error that names no message."""
    return Trouble(said(error), cause_of(error))


def worst(troubles: list[Trouble]) -> Trouble | None:
    """The trouble that decides what to do: one that stops, else one that waits, else one that is tried again."""
    order = ("setup", "away", "data")
    return min(troubles, key=lambda trouble: order.index(trouble.cause), default=None)
