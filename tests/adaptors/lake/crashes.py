"""A lake's writer dies at any of its steps, and lives again; in the end each change is in its table once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.lake.writer import LakeWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Mode, Op

TABLES = ("a", "b", "c")
WHO = ("shop", "lake")


class Killed(BaseException):
    """The end of a process."""


class Steps:
    """Kills before or after the n-th call of some methods."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def pass_one(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed

    def watch(self, patch: pytest.MonkeyPatch, kind: type, *names: str) -> None:
        for name in names:
            patch.setattr(kind, name, self._stepped(getattr(kind, name)))

    def _stepped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:
            self.pass_one()
            out = method(*given, **named)
            self.pass_one()
            return out

        return stepped


def changes(table: str, first: int, end: int) -> pa.RecordBatch:
    """Changes `first` up to `end` of a table: each sets the document n % 5, and every seventh deletes it."""
    numbers = list(range(first, end))
    ids = pa.array([n % 5 for n in numbers], pa.int64())
    columns = pa.record_batch({"id": ids, "n": pa.array(numbers, pa.int64())})
    ops = pa.array([Op.DELETE if n % 7 == 6 else Op.UPDATE for n in numbers], pa.uint8())
    rows = make_rows(table, columns, ["id"], op=ops, mode=Mode.SYNC, timestamp=1)
    return placed(rows, 0, pa.array(numbers, pa.int64()))


def life(writer: LakeWriter, epoch: int, size: int, end: int, told: Callable[[int], None] = lambda _: None) -> None:
    """Deliver what the tables do not have yet, in batches of all tables."""
    who = Who(*WHO, epoch)
    kept = writer.claim(who)
    assert writer.lost(who) == []
    start = kept["offsets"]["0"] if kept else 0
    for first in range(start, end, size):
        to = min(end, first + size)
        staged = [writer.stage([changes(table, first, to)]) for table in TABLES]
        writer.finish(staged, who, {"0": to})
        told(to)
    writer.close()


def expected(end: int) -> list[dict[str, Any]]:
    """The documents of each table after all changes."""
    found = {}
    for n in range(end):
        found[n % 5] = n
        if n % 7 == 6:
            del found[n % 5]
    return [{"id": id, "n": n} for id, n in sorted(found.items())]
