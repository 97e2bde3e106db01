"""The aggregate of `eventsourcing` that is measured; that package finds its classes by the name of their module."""

from __future__ import annotations

from eventsourcing.domain import Aggregate, event


class Cart(Aggregate):
    """A cart that counts what is put into it."""

    def __init__(self) -> None:
        self.items = 0

    @event("Added")
    def add(self, sku: str, count: int, note: str) -> None:
        """Put something into it."""
        self.items += 1
