"""Staging: stores a task's operations for `finish`, compressed inside `Staged`.

Staging them in a table of DynamoDB would cost as much as writing them to their own table."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.dynamodb.sink import operations
from tailrace.adaptors.dynamodb.sink.operations import Operation
from tailrace.adaptors.sinks.folding import counted
from tailrace.storage.keys import KeySchema

UNIT_BYTES = 8 * 1024 * 1024
"""About the size of one unit before compression."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Staged operations of one namespace, compressed in `data`."""

    namespace: str
    schema: KeySchema
    puts: int
    deletes: int
    data: bytes

    def operations(self) -> list[Operation]:
        """Return the operations in their order."""
        found: list[Operation] = msgspec.msgpack.decode(zlib.decompress(self.data))
        return found


def stage(rows: Iterable[pa.RecordBatch]) -> Staged:
    """Stage the operations of a task's share of a batch for DynamoDB, and return what `finish` needs to apply it."""
    counts: dict[str, int] = {}
    units = []
    for made in operations.batches(counted(rows, counts), UNIT_BYTES):
        data = zlib.compress(msgspec.msgpack.encode(made.take()), 1)
        units.append(Unit(made.namespace, made.schema, made.puts, made.deletes, data))
    return Staged(sum(counts.values()), units, counts)
