"""Dropped and renamed tables: which of the followed tables are missing from the catalog.

PostgreSQL's log does not say that a table was dropped or renamed, so the follower looks into the catalog from time to
time.  A table has ended once the follower has read everything that was committed when it missed the table: until then
the log may still have changes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Endings:
    """The followed tables that are missing, each reported once."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._told: set[str] = set()

    def miss(self, gone: Iterable[str], ahead: Callable[[], int]) -> None:
        """Set which tables are missing now.  `ahead` returns how far the server's log is."""
        missed = set(gone)
        self._told &= missed  # a table that has come back may end again
        self._until = {name: until for name, until in self._until.items() if name in missed}
        if new := missed - self._until.keys() - self._told:
            self._until |= dict.fromkeys(new, ahead())

    def ripe(self, lsn: int) -> list[str]:
        """Return the tables that have ended, now that the log is read up to `lsn`."""
        ended = sorted(name for name, until in self._until.items() if until <= lsn)
        for name in ended:
            del self._until[name]
        self._told.update(ended)
        return ended
