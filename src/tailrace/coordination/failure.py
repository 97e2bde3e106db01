"""Failure: what follows when a handler, a function or a writer fails for one record.  One policy for all of them.

data     the record, or what is made of it: try again, then do as the policy says
away     a server, a network, a disk, a process: wait, since nothing is lost
setup    a permission, a table, another run: stop, since skipping would skip everything
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailrace.errors import (
    BadSetting,
    Broken,
    Closed,
    Diverged,
    Fenced,
    HomeError,
    NotInstalled,
    NotReady,
    StorageError,
)

OnError: TypeAlias = Literal["stop", "dead_letter", "skip"]
"""What happens to a record that keeps failing: stop before it, keep it as a dead letter and go on, or leave it out."""
Cause: TypeAlias = Literal["data", "away", "setup"]
Verdict: TypeAlias = Literal["wait", "stop", "dead_letter", "skip"]
SETUP = (BadSetting, Broken, Closed, Diverged, Fenced, HomeError, NotInstalled, NotReady)


def cause_of(error: BaseException) -> Cause:
    """Why a handler, a function or a writer failed, by its error: the record (data), the storage (away), or settings
    and rights (setup)."""
    if isinstance(error, SETUP):
        return "setup"
    return "away" if isinstance(error, StorageError) else "data"


def verdict(cause: Cause, on_error: OnError) -> Verdict:
    """What to do with a record that has failed as often as the policy allows: it is passed over only if the record
    itself is the cause."""
    if cause == "away":
        return "wait"
    return "stop" if cause == "setup" else on_error


def said(error: BaseException) -> str:
    """The text of a failure for people, as dead letters and statuses store it: without the name of the class if the
    error is tailrace's own."""
    told = isinstance(error, (*SETUP, StorageError))
    return str(error) if told else f"{type(error).__name__}: {error}"
