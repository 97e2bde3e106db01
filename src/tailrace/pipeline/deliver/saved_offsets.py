"""Saved offsets: a writer's marks as the home keeps them, stored now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tailrace.pipeline.deliver import offsets
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.storage.calls import Store


class SavedOffsets:
    """Stores the marks of one writer, at most every `seconds`."""

    def __init__(self, store: Store, pipeline: str, writer: str, seconds: float) -> None:
        self._store, self._names, self._seconds = store, (pipeline, writer), seconds
        self._saved_at = 0.0
        self.finished: Mapping[int, Mark] | None = None
        """What this run saw the sink store with its data."""

    def saw(self, marks: Mapping[int, Mark]) -> None:
        """The sink has stored these.  They are copied: a command moves the marks, and leaves no trace in the sink."""
        self.finished = {q: mark.copy() for q, mark in marks.items()}

    def load(self, partitions: int) -> tuple[int, dict[int, Mark]]:
        """The epoch and the marks."""
        return self._store.run(offsets.load(*self._names, partitions))

    def save(self, epoch: int, marks: Mapping[int, Mark], *, force: bool) -> None:
        """Store the marks, if it is time, or at once."""
        now = time.monotonic()
        if force or now - self._saved_at >= self._seconds:
            self._store.run(offsets.save(*self._names, epoch, marks, self.finished))
            self._saved_at = now
