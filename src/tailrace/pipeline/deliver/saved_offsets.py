"""Saved offsets: stores a writer's marks in the home from time to time."""

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
        """The marks that this run last saw the sink store with its data; None: none yet."""

    def saw(self, marks: Mapping[int, Mark]) -> None:
        """Note that the sink has stored these marks.  Copies them: a command moves the marks, but not in the sink."""
        self.finished = {q: mark.copy() for q, mark in marks.items()}

    def load(self, partitions: int) -> tuple[int, dict[int, Mark]]:
        """The stored epoch and marks."""
        return self._store.run(offsets.load(*self._names, partitions))

    def save(self, epoch: int, marks: Mapping[int, Mark], *, force: bool) -> None:
        """Store the marks if `seconds` have passed since the last time, or at once with `force`."""
        now = time.monotonic()
        if force or now - self._saved_at >= self._seconds:
            self._store.run(offsets.save(*self._names, epoch, marks, self.finished))
            self._saved_at = now
