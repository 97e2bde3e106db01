"""Pretty: show messages as they pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tailrace.adaptors.jsontext import printed
from tailrace.errors import BadSetting


@dataclass(frozen=True, slots=True)
class Pretty:
    """Prints messages as JSON where the task runs, and passes them on."""

    takes_rows: ClassVar[bool] = True
    spaces: int = 2

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The same rows."""
        for text in printed(batch, self.spaces):
            sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return [batch]


def pretty(spaces: int = 2) -> Pretty:
    """A function that prints each message as JSON indented by so many spaces, and passes it on."""
    if isinstance(spaces, bool) or not isinstance(spaces, int) or not 0 <= spaces <= 16:
        raise BadSetting(f"pretty takes a number of spaces from 0 to 16, not {spaces!r}")
    return Pretty(spaces)
