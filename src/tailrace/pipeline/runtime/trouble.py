"""Trouble: the error that prevented the delivery of a message or of a task's ranges.

`coordination.failure` decides what the writer then does."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.coordination.failure import Cause, cause_of, said
from tailrace.errors import TailraceError


@dataclass(slots=True)
class Trouble:
    """The error of a message (`offset` -1: of everything that a task was given) and its cause; it can be pickled."""

    error: str
    cause: Cause = "data"
    partition: int = -1
    offset: int = -1
    namespace: str = ""
    id: str = ""


class Stuck(TailraceError):
    """A writer has stopped and needs the operator."""


def trouble_of(error: BaseException) -> Trouble:
    """The trouble for an error that names no message."""
    return Trouble(said(error), cause_of(error))


def worst(troubles: list[Trouble]) -> Trouble | None:
    """The trouble that decides what the writer does: first "setup", then "away", then "data"; None if there is none."""
    order = ("setup", "away", "data")
    return min(troubles, key=lambda trouble: order.index(trouble.cause), default=None)
