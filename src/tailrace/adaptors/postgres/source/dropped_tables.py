"""Dropped and renamed tables.  The server's log does not say so; the follower looks into the catalog now and then.

A table has ended once all is read that was committed when it was missed: until then changes of it may still come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Endings:
    """The tables that are followed and missing, each reported once."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._told: set[str] = set()

    def miss(self, gone: Iterable[str], ahead: Callable[[], int]) -> None:
        """These, and no others, are missed now; `ahead` tells how far the server's log is."""
        missed = set(gone)
        self._told &= missed  # one that has come back may end again
        self._until = {name: until for name, until in self._until.items() if name in missed}
        if new := missed - self._until.keys() - self._told:
            self._until |= dict.fromkeys(new, ahead())

    def ripe(self, lsn: int) -> list[str]:
        """Those that have ended, now that the log is read so far."""
        ended = sorted(name for name, until in self._until.items() if until <= lsn)
        for name in ended:
            del self._until[name]
        self._told.update(ended)
        return ended
