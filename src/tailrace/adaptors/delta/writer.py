"""The writer of Delta tables: the writer of all lakes, on a lake of Delta tables."""

from __future__ import annotations

from tailrace.adaptors.delta.lake import DeltaLake
from tailrace.adaptors.delta.settings import DeltaSink
from tailrace.adaptors.lake.writer import LakeWriter


class DeltaWriter(LakeWriter):
    """Writes the Delta tables below one root."""

    def __init__(self, settings: DeltaSink) -> None:
        super().__init__(settings)
        self._delta = settings

    def __repr__(self) -> str:
        return f"DeltaWriter({self._delta!r})"

    def _open(self) -> DeltaLake:
        return DeltaLake(self._delta)
