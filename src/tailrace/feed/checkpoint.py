"""Checkpoints: places in one partition of the feed, each one integer, so that they can be compared.

    epoch x 1,000,000 + index in the epoch

The index is that of the next batch to be read.  The checkpoint behind a closed epoch is the first of the next epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.errors import BadInput

MAX_BATCHES = 1_000_000
"""An epoch has fewer batches than this."""
MAX_EPOCHS = (2**63 - 1) // 1_000_000


class EpochPlace(NamedTuple):
    """A batch's number in an epoch, and the number of the epoch."""

    epoch: int
    batch: int


def checkpoint(epoch: int, index: int) -> int:
    """The checkpoint before a batch of an epoch; `BadInput` if there can be no such batch."""
    if not 0 <= epoch < MAX_EPOCHS or not 0 <= index < MAX_BATCHES:
        raise BadInput(
            f"an epoch counts from 0 and has batches 0 to {MAX_BATCHES - 1:,}, not epoch {epoch}, batch {index}"
        )
    return epoch * MAX_BATCHES + index


def after_epoch(epoch: int) -> int:
    """The checkpoint behind a closed epoch."""
    return checkpoint(epoch + 1, 0)


def place(given: int) -> EpochPlace:
    """The epoch, and the batch in it that a reader at this checkpoint reads next; `BadInput` if it is no checkpoint."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < MAX_EPOCHS * MAX_BATCHES:
        raise BadInput(f"a checkpoint is a whole number from 0 on, of 63 bits, not {given!r}")
    return EpochPlace(*divmod(given, MAX_BATCHES))
