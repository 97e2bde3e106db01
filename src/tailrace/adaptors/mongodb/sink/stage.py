"""Staging: stores a task's operations for `finish`, inside `Staged` if they are few, else in the collection `staged`.

tailrace.staged    _id {unit, part}, at (time of staging, for `tidy`), data: concatenated operations, cut into parts
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.mongodb.deployment import Deployment
from tailrace.adaptors.mongodb.sink import operations
from tailrace.adaptors.sinks.folding import counted
from tailrace.errors import Unavailable

INLINE_BYTES = 256 * 1024
"""The most bytes of a task's share that travel inside `Staged`."""
UNIT_BYTES = 32 * 1024 * 1024
"""About how many bytes of operations a task gathers before it stages them as a unit."""
PART_BYTES = 8 * 1024 * 1024
ORPHANED = timedelta(hours=1)
"""The age from which `tidy` removes staged parts.  A batch takes far less; one that does not is staged again."""
STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Unit:
    """Staged operations of one namespace: in `data`, or in `parts` documents of the collection under `name`."""

    namespace: str
    puts: int
    deletes: int
    data: bytes = b""
    name: str = ""
    parts: int = 0


def stage(deployment: Deployment, state: str, rows: Iterable[pa.RecordBatch]) -> Staged:
    """Stage the operations of a task's share of a batch for MongoDB, and return what `finish` needs to apply it."""
    counts: dict[str, int] = {}
    units: list[Unit] = []
    room = INLINE_BYTES
    for namespace, made in operations.batches(counted(rows, counts), UNIT_BYTES):
        data = b"".join(made.take())
        if len(data) <= room:
            room -= len(data)
            units.append(Unit(namespace, made.puts, made.deletes, data))
        else:
            name, parts = _put(deployment, state, data)
            units.append(Unit(namespace, made.puts, made.deletes, name=name, parts=parts))
    return Staged(sum(counts.values()), units, counts)


def _put(deployment: Deployment, state: str, data: bytes) -> tuple[str, int]:
    name, now = uuid.uuid4().hex, datetime.now(UTC)
    cuts = range(0, len(data), PART_BYTES)
    with deployment.guarded("staging rows"):
        collection = deployment.client[state][STAGED]
        for n, at in enumerate(cuts):
            key = {"unit": name, "part": n}
            collection.insert_one({"_id": key, "unit": name, "at": now, "data": data[at : at + PART_BYTES]})
    return name, len(cuts)


def operations_of(deployment: Deployment, state: str, unit: Unit) -> Iterator[bytes]:
    """Yield the operations of a unit; raise `Unavailable` if its staged parts are gone."""
    if not unit.name:
        yield from _split([unit.data])
        return
    with deployment.guarded("reading what was staged"):
        yield from _split(_parts(deployment, state, unit))


def _parts(deployment: Deployment, state: str, unit: Unit) -> Iterator[bytes]:
    collection = deployment.client[state][STAGED]
    for n in range(unit.parts):
        found = collection.find_one({"_id": {"unit": unit.name, "part": n}})
        if found is None:
            raise Unavailable(f"rows of {unit.namespace} that were staged are gone; the batch must be staged again")
        yield found["data"]


def _split(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the BSON documents in bytes that were cut anywhere; each document begins with its length."""
    held = b""
    for part in parts:
        held, at = held + part, 0
        while len(held) - at >= 4 and len(held) - at >= (size := int.from_bytes(held[at : at + 4], "little")):
            yield held[at : at + size]
            at += size
        held = held[at:]


def discard(deployment: Deployment, state: str, units: Sequence[Unit]) -> None:
    """Remove the parts of these units from the collection `staged`."""
    names = [unit.name for unit in units if unit.name]
    with deployment.guarded("removing what was staged"):
        collection: Any = deployment.client[state][STAGED]
        for name in names:
            collection.delete_many({"_id": {"$gte": {"unit": name}, "$lt": {"unit": f"{name}~"}}})


def tidy(deployment: Deployment, state: str) -> None:
    """Remove the parts in the collection `staged` that are older than `ORPHANED`, which crashed runs have left."""
    with deployment.guarded("removing what was staged"):
        deployment.client[state][STAGED].delete_many({"at": {"$lt": datetime.now(UTC) - ORPHANED}})
