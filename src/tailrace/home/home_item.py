"""The home's own item, created by the process that opens the home first.

$Home, 0    format, id
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from tailrace.coordination import guard
from tailrace.errors import HomeError, ObjectMissing
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Item, Key, Put

FORMAT = 1
"""The version of the format of everything in a home."""
_HOME = Key("$Home")


def open_home_item(url: str) -> Steps[Item]:
    """Read the home's item, or create it; `HomeError` for a newer format and for a copy that is not complete."""

    def plan(item: Item | None) -> tuple[Put, ...] | None:
        if item is None:
            return (Put(_HOME, {"format": FORMAT, "id": secrets.token_hex(8)}, (Absent(),)),)
        if "copying" in item:
            raise HomeError(
                f"the home {url} is a copy that is not complete; run `tailrace home copy` again, with the same source"
            )
        if item["format"] > FORMAT:
            raise HomeError(
                f"the home {url} was written by a newer tailrace (format {item['format']}, this one knows {FORMAT}); "
                "upgrade: pip install -U tailrace"
            )
        return None

    if (yield from guard.read(_HOME)) is None:
        yield from _reach_objects()
    item = yield from guard.settle(_HOME, plan)
    assert item is not None
    return item


def _reach_objects() -> Steps[None]:
    """Read an object before a home is created, so that a missing bucket is an error now and not at the first large
    record."""
    with suppress(ObjectMissing):
        yield from guard.persist(lambda: calls.get_object("home"), patience=5)
