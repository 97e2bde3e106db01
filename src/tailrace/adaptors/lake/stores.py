"""Stores: where a lake keeps what is not a table yet, objects below its own folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

OWN = "_tailrace"
"""The folder with what is not data; engines pass over names that begin so."""
STAGING = f"{OWN}/staging"


class Store(Protocol):
    """Objects by their names below the lake's root.  What `put` has written is durable when it returns."""

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Write an object."""

    def read(self, name: str, start: int, length: int) -> bytes | None:
        """A stretch of an object; None if the object is gone."""

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""

    def names(self, folder: str) -> list[str]:
        """The objects right below a folder, by their last names."""
