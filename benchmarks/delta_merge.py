"""How many rows a second are merged into a Delta table?"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.harness import Figure, Figures, Question, Results, Run, Side, Target, expect, timed
from tailrace.adaptors.contract import Who
from tailrace.adaptors.delta.settings import DeltaSink
from tailrace.adaptors.delta.writer import DeltaWriter
from tailrace.adaptors.lake.names import folder_of
from tailrace.adaptors.rows.rows import columns_of, make_rows
from tailrace.log.record import Mode

RATE = Figure("rows/s")
NAMESPACE, BATCH = "public.items", 50_000
OURS, THEIRS = "tailrace's sink", "deltalake's merge"
WHO = Who("bench", "sink", 1)


def question(quick: bool) -> Question:
    """As many rows as the table has, half of which it has."""
    rows = 50_000 if quick else 1_000_000
    sides = {
        OURS: (ours, "stage() and finish(): staged, folded by id, merged, offsets and transaction ids; all synced"),
        THEIRS: (
            theirs,
            "merge(), update all, insert all, as dlt calls it; no sync",
        ),
    }
    return Question(
        name="delta_merge",
        title="rows merged into a Delta table a second",
        note=f"{rows:,} rows of 200 bytes into a table of as many on this disk; half replace rows, half are new. From "
        "Arrow batches, without Spark, in one process; the rows are counted after the clock has stopped.",
        sides=[Side(name, mode, partial(opened, merge, rows), name != OURS) for name, (merge, mode) in sides.items()],
        figures=[RATE],
        base=OURS,
        targets=[Target(f"≥ 1 times {THEIRS}", ratio, 1)],
        rounds=1 if quick else 3,
    )


def ratio(results: Results) -> float:
    """Ours by theirs."""
    return results.of(OURS, RATE.name) / results.of(THEIRS, RATE.name)


def batches(first: int, last: int) -> list[pa.RecordBatch]:
    """Rows with these ids."""
    return [_rows(range(at, min(at + BATCH, last))) for at in range(first, last, BATCH)]


def _rows(numbers: range) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "id": list(numbers),
        "customer": [n % 5000 for n in numbers],
        "total": [n % 100_000 / 7 for n in numbers],
        "at": pa.array([1_700_000_000_000_000 + n for n in numbers], pa.timestamp("us", "UTC")),
        "note": ["x" * 140 + str(n) for n in numbers],
    }
    return make_rows(NAMESPACE, pa.RecordBatch.from_pydict(columns), ["id"], mode=Mode.SYNC)


@contextlib.contextmanager
def opened(merge: Callable[[Path, list[pa.RecordBatch]], None], rows: int, folder: Path) -> Iterator[Run]:
    """A table that each round has a copy of."""
    template, given = folder / "template", batches(rows // 2, rows + rows // 2)
    columns = [columns_of(batch) for batch in batches(0, rows)]
    write_deltalake(template / folder_of(NAMESPACE), pa.Table.from_batches(columns))

    def run() -> Figures:
        place = folder / uuid.uuid4().hex
        shutil.copytree(template, place)
        seconds, _ = timed(lambda: merge(place, given))
        expect("rows", DeltaTable(place / folder_of(NAMESPACE)).count(), rows + rows // 2)
        shutil.rmtree(place)
        return {RATE.name: rows / seconds}

    yield run


def ours(place: Path, given: list[pa.RecordBatch]) -> None:
    """The adaptor's sink, as a run uses it."""
    with contextlib.closing(DeltaWriter(DeltaSink(path=str(place)))) as writer:
        writer.claim(WHO)
        writer.finish([writer.stage(given)], WHO, {"0": 1})


def theirs(place: Path, given: list[pa.RecordBatch]) -> None:
    """The library's own."""
    source = pa.Table.from_batches([columns_of(batch) for batch in given])
    table = DeltaTable(place / folder_of(NAMESPACE))
    merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
