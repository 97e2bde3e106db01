"""Pretty: the function that prints messages as they pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tailrace.adaptors.rows.json_text import printed
from tailrace.errors import BadSetting

MAX_PRINTED_CHARACTERS = 1 << 20
"""About how many characters one task may print: a copy of a large table would fill the driver's memory."""
_collected: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting() -> Iterator[list[str]]:
    """A block that collects what functions print in a task, which has no terminal; the driver prints it."""
    found: list[str] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def _show(text: str) -> None:
    found = _collected.get()
    if found is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif sum(map(len, found)) <= MAX_PRINTED_CHARACTERS:
        found.append(
            text
            if len(text) <= MAX_PRINTED_CHARACTERS
            else text[:MAX_PRINTED_CHARACTERS] + "\n…: more than a task may print\n"
        )


@dataclass(frozen=True, slots=True)
class Pretty:
    """Prints messages as JSON, on the terminal that runs the pipeline, and passes them on."""

    takes_rows: ClassVar[bool] = True
    spaces: int = 2

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The same rows."""
        _show("".join(f"{text}\n" for text in printed(batch, self.spaces)))
        return [batch]


def pretty(spaces: int = 2) -> Pretty:
    """A function that prints each message as JSON, indented by `spaces`, and passes it on."""
    if isinstance(spaces, bool) or not isinstance(spaces, int) or not 0 <= spaces <= 16:
        raise BadSetting(f"pretty takes a number of spaces from 0 to 16, not {spaces!r}")
    return Pretty(spaces)
