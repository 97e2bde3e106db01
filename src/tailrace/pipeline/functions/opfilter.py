"""Opfilter: the function that keeps messages of some ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.rows import ops_of
from tailrace.errors import BadSetting
from tailrace.log.record import Op

OPS = {op.name.lower(): int(op) for op in (Op.INSERT, Op.UPDATE, Op.DELETE)}


@dataclass(frozen=True, slots=True)
class OpFilter:
    """Keeps messages of some ops."""

    takes_rows: ClassVar[bool] = True
    ops: tuple[int, ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows that have one of the ops."""
        return [batch.filter(pc.is_in(ops_of(batch), pa.array(self.ops, pa.uint8())))]


def opfilter(*only: str, but: str | Iterable[str] = ()) -> OpFilter:
    """A function that keeps only these ops ("insert", "update", "delete"), or all but some."""
    excepted = (but,) if isinstance(but, str) else tuple(but)
    for op in (*only, *excepted):
        if op not in OPS:
            raise BadSetting.unknown("opfilter", str(op), OPS)
    if bool(only) == bool(excepted):
        raise BadSetting("opfilter takes the ops to keep, or with but=… those to leave out")
    return OpFilter(tuple(n for op, n in OPS.items() if op in only or (excepted and op not in excepted)))
