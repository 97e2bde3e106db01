"""Staging: a task's share of a batch, brought into the sink where its users do not see it."""

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
"""Staged rows this small travel within the answer: no task needs a connection for them."""
SHARE_BYTES = 64 * 1024
"""How much of a task's share may travel that way."""


class Loader(Protocol):
    """Makes and fills staging tables on one connection, by the system's bulk load."""

    def load(self, rows: StagedRows, data: pa.RecordBatch) -> StagedRows:
        """Stage some rows in a table of their own; gives them with its name."""

    def commit(self) -> None:
        """Keep what was staged."""


def stage(dialect: Dialect, batches: Iterable[pa.RecordBatch], loader: Callable[[ExitStack], Loader]) -> Staged:
    """Bring rows in.  All tables of a share are committed together, so a share that fails leaves none.

    `loader` is called when the first rows need a table; what it opens is closed by the stack."""
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
    """A few rows that are kept beside the sink."""
    return [replace(rows, data=_ipc(data)) for rows, data in staged_rows(dialect, batches)]


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
