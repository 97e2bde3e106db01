"""Pretty: show messages as they pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from tailrace.adaptors.message import Message
from tailrace.adaptors.rows import messages_of
from tailrace.errors import BadSetting

_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode


def shown(message: Message) -> dict[str, Any]:
    """A message as plain values."""
    return {
        "op": message.op.name.lower(),
        "namespace": message.namespace,
        "id": message.id,
        "timestamp": message.timestamp,
        "data": message.data,
    }


def printed(batch: pa.RecordBatch, spaces: int) -> Iterator[str]:
    """Each row as JSON text; with no spaces on one line."""
    for message in messages_of(batch):
        text = _json(shown(message))
        yield (msgspec.json.format(text, indent=spaces) if spaces else text).decode(errors="replace")


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
