"""What a change log stands for: its documents, as a reader of the table finds them out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.lake.writer import LakeWriter
from tailrace.adaptors.rows.provenance import placed

OURS = ("_op", "_timestamp", "_partition", "_offset", "_transaction", "_position", "_unset")


def current(rows: Iterable[dict[str, Any]], keys: Sequence[str] = ("id",)) -> list[dict[str, Any]]:
    """The documents after all changes, in the order in which they were committed."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["_op"] == "truncate":
            found.clear()
            continue
        id = tuple(row[key] for key in keys)
        unset = row.get("_unset")
        document = {name: value for name, value in row.items() if name not in OURS and name not in (unset or ())}
        if row["_op"] == "delete":
            found.pop(id, None)
        elif unset is None:
            found[id] = document
        elif id in found:
            found[id] |= document
    return list(found.values())


_offsets = count()


class Placed(LakeWriter):
    """A writer whose rows have a place in the commit log, as those of a pipeline have."""

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        return super().stage(map(_placed, rows))


def _placed(batch: pa.RecordBatch) -> pa.RecordBatch:
    if "offset" in batch.schema.names:
        return batch
    return placed(batch, 0, pa.array([next(_offsets) for _ in range(batch.num_rows)], pa.int64()))


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the commit log has them; a command, which has no place, is behind all there are."""
    return sorted(rows, key=lambda row: (row["_offset"] is None, row["_offset"], row["_partition"]))
