"""Settings that every lake sink has."""

from __future__ import annotations

from typing import Protocol


class LakeSettings(Protocol):
    """The settings that every lake sink has."""

    @property
    def keep(self) -> str:
        """What tables hold: "state" or "changes"."""

    @property
    def plain(self) -> bool:
        """Whether a change log has the documents alone, without columns for op, place and time."""

    @property
    def every(self) -> float | None:
        """Seconds between two batches, at least; None for the default."""

    @property
    def alter(self) -> bool:
        """Whether the writer may add columns to tables, and widen their types."""
