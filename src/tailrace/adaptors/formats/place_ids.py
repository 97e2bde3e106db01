"""Ids of rows by their place in the commit log: the same whenever a share is made again, and different for each row.

    <partition>-<offset>      a function may make several rows of one, and those after the first end in -1, -2 and so on

The ids of one namespace differ.  Rows of different namespaces may have the same id, because a batch gathers the rows
of a namespace, so which namespace comes first depends on the other rows of the batch.
"""

from __future__ import annotations

from tailrace.adaptors.rows.message import Place


class PlaceIds:
    """Gives ids to the rows of one share, in their order."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int | None, int | None], int] = {}

    def of(self, namespace: str, place: Place) -> str:
        """The id of the next row of this namespace that has this place."""
        where = namespace, place.partition, place.offset
        nth = self._last[where] = self._last.get(where, -1) + 1
        return f"{place.partition}-{place.offset}" + (f"-{nth}" if nth else "")
