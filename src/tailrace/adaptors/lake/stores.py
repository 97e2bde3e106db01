"""Stores: the objects of a lake, below its root, that are not tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

OWN = "_tailrace"
"""The folder for everything but data.  Engines skip names that begin with an underscore."""
STAGING = f"{OWN}/staging"


class Store(Protocol):
    """Objects, named by their paths below the lake's root."""

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Write an object.  It is durable when this returns."""

    def read(self, name: str, start: int, length: int) -> bytes | None:
        """Read `length` bytes of an object from `start` on; None if the object is gone."""

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""

    def names(self, folder: str) -> list[str]:
        """The names of the objects directly in a folder, without the folder."""
