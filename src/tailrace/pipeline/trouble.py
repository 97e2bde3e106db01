"""Trouble: what kept a message, or a whole share, from being delivered, and what follows from it.

data     the message, or what a function or the sink makes of it: one at a time, then as the branch's policy says
away     a server, a network, a disk, a process: nothing is lost by waiting
setup    a right, a table, another run: nothing is lost by stopping, and skipping would skip everything
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tailrace.errors import BadSetting, Broken, Closed, Fenced, HomeError, NotInstalled, NotReady, StorageError

Cause: TypeAlias = Literal["data", "away", "setup"]
SETUP = (BadSetting, Broken, Closed, Fenced, HomeError, NotInstalled, NotReady)


@dataclass(slots=True)
class Trouble:
    """A message, or a whole share, that could not be delivered; it can be pickled."""

    error: str
    cause: Cause = "data"
    partition: int = -1
    offset: int = -1
    namespace: str = ""
    id: str = ""


def cause_of(error: BaseException) -> Cause:
    """What an error is about."""
    if isinstance(error, SETUP):
        return "setup"
    return "away" if isinstance(error, StorageError) else "data"


def trouble_of(error: BaseException) -> Trouble:
    """An error that names no message."""
    told = isinstance(error, (*SETUP, StorageError))
    return Trouble(str(error) if told else f"{type(error).__name__}: {error}", cause_of(error))


def worst(troubles: list[Trouble]) -> Trouble | None:
    """The one that decides what to do: stopping before waiting before trying again."""
    order = ("setup", "away", "data")
    return min(troubles, key=lambda trouble: order.index(trouble.cause), default=None)
