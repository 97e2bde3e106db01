"""Flights: batches on their way into the log, each with the bytes that were put for it, or are being put."""

from __future__ import annotations

from concurrent.futures import Future

from tailrace.log.append import Placed
from tailrace.log.batch import Batch


class Flight:
    """A batch between its last record and its acknowledgement.

    Its bytes are `placed`, or being put by another thread, or could not be."""

    __slots__ = ("batch", "error", "placed", "put")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.placed: Placed | None = None
        self.put: Future[Placed] | None = None
        self.error: Exception | None = None

    @property
    def started(self) -> bool:
        """Whether its bytes were put, or somebody is at it, or it was tried."""
        return self.placed is not None or self.put is not None or self.error is not None

    def stored(self) -> Placed:
        """Where its bytes are, once they are; raises why they are not."""
        if self.error is not None:
            raise self.error
        if self.placed is None:
            assert self.put is not None, "nobody puts it"
            self.placed = self.put.result()
        return self.placed
