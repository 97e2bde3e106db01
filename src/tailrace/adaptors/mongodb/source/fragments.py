"""Fragments: joins the parts of an event over 16 MB, which the server splits."""

from __future__ import annotations

from typing import Any


class Fragments:
    """The parts of one event that have arrived so far."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def join(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """Add an event or a fragment; return the event once it is whole, else None."""
        part = event.pop("splitEvent", None)
        if part is None:
            return event
        self._held |= event
        if part["fragment"] < part["of"]:
            return None
        whole, self._held = self._held, {}
        return whole
