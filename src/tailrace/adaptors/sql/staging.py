"""Staging: loads a task's share of a batch into the sink where the sink's users do not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from tailrace.adaptors.contract import Staged
from tailrace.adaptors.sinks.folding import counted
from tailrace.adaptors.sql.dialect import Dialect
from tailrace.adaptors.sql.staged_rows import StagedRows, staged_rows

INLINE_BYTES = 16 * 1024
"""Staged rows up to this size travel within the task's result, so that the task needs no connection for them."""
SHARE_BYTES = 64 * 1024
"""The most bytes of a task's share that travel this way."""


class Loader(Protocol):
    """Makes and fills staging tables on one connection, by the system's bulk load."""

    def load(self, rows: StagedRows, data: pa.RecordBatch) -> StagedRows:
        """Stage rows in a table of their own; return them with its name."""

    def commit(self) -> None:
        """Commit what was staged."""


def stage(dialect: Dialect, batches: Iterable[pa.RecordBatch], loader: Callable[[ExitStack], Loader]) -> Staged:
    """Stage a task's share of rows.  All its staging tables are committed together, so that a share that fails leaves
    none.

    `loader` is called when the first rows need a table; the `ExitStack` that it gets closes what it opens."""
    counts: dict[str, int] = {}
    made: list[StagedRows] = []
    with ExitStack() as stack:
        room, opened = SHARE_BYTES, None
        for rows, data in staged_rows(dialect, counted(batches, counts)):
            if data.nbytes <= min(INLINE_BYTES, room):
                room -= data.nbytes
                made.append(replace(rows, data=_ipc(data)))
                continue
            if opened is None:
                opened = loader(stack)
            made.append(opened.load(rows, data))
        if opened is not None:
            opened.commit()
    return Staged(sum(counts.values()), made, counts)


def inline(dialect: Dialect, batches: Iterable[pa.RecordBatch]) -> list[StagedRows]:
    """Stage a few rows within the task's result, without a table."""
    return [replace(rows, data=_ipc(data)) for rows, data in staged_rows(dialect, batches)]


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
