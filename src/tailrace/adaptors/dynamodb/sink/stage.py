"""Staging: what tasks hand to `finish`, inside their answer, compressed.

DynamoDB has no cheap place to put rows aside: what is staged there would be paid for twice."""

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
"""About so much is in one unit, before it is compressed."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Operations of one namespace."""

    namespace: str
    schema: KeySchema
    puts: int
    deletes: int
    data: bytes

    def operations(self) -> list[Operation]:
        """In their order."""
        found: list[Operation] = msgspec.msgpack.decode(zlib.decompress(self.data))
        return found


def stage(rows: Iterable[pa.RecordBatch]) -> Staged:
    """A task's share, ready to be finished."""
    counts: dict[str, int] = {}
    units = []
    for made in operations.batches(counted(rows, counts), UNIT_BYTES):
        data = zlib.compress(msgspec.msgpack.encode(made.take()), 1)
        units.append(Unit(made.namespace, made.schema, made.puts, made.deletes, data))
    return Staged(sum(counts.values()), units, counts)
