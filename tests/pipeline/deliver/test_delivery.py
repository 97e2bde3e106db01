"""Delivery: which messages of a range are still to be delivered, to the offset."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Command, Who
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Op
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, _pending, deliver
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import deliver_singly
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.runtime.open_topics import open_home

TABLE, OTHER = "shop.orders", "shop.items"


def fetched(offsets: list[int], *, gaps: bool) -> Fetched:
    rows = make_rows(TABLE, pa.RecordBatch.from_pydict({"id": offsets}), ["id"])
    return Fetched(0, offsets[0], rows, pa.array(offsets, pa.int64()) if gaps else None)


@pytest.mark.parametrize("gaps", [False, True])
def test_what_is_acknowledged_is_not_delivered_again_and_nothing_else_is_passed(gaps: bool) -> None:
    offsets = [4, 6, 7, 9] if gaps else [*range(4, 10)]
    for done, end in product(range(3, 11), range(4, 12)):
        mark = Mark(3, {TABLE: done, OTHER: 8})
        left = _pending(DeliveryRange(0, 4, end, mark), fetched(offsets, gaps=gaps))
        found = [n for one in left for n in one.offsets.to_pylist()]
        assert found == [n for n in offsets if n < end and mark.pending(TABLE, n)], (done, end)


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    made = CommitLog(open_home(str(tmp_path / "home")), "p", partitions=1)
    made.begin({"at": 0})
    return made


def change(namespace: str, id: int, op: Op = Op.INSERT) -> pa.RecordBatch:
    return make_rows(namespace, pa.RecordBatch.from_pydict({"id": [id]}), ["id"], op=op)


def test_nothing_after_a_command_is_delivered_before_it(log: CommitLog, tmp_path: Path) -> None:
    """Whatever its namespace: offsets count all that is before them as done."""
    changes = [change((TABLE, OTHER)[n % 2], n) for n in range(6)]
    changes += [change(TABLE, 0, Op.COMMAND), *(change((TABLE, OTHER)[n % 2], n) for n in range(6, 9))]
    changes += [change(OTHER, 0, Op.COMMAND)]
    for n, one in enumerate(changes):
        log.take_in([one], {"at": n})
    branch = Branch(
        "p", "w", str(tmp_path / "home"), log.topic.name, "tests.pipeline.toys:sink", {"path": str(tmp_path)}
    )
    outcome = deliver(branch, [DeliveryRange(0, 0, 11, Mark(-1))])
    assert outcome.trouble is None
    assert (outcome.rows, outcome.reached, outcome.commands) == (6, {0: 6}, {0: (TABLE, Command("truncate"))})
    outcome = deliver(branch, [DeliveryRange(0, 7, 11, Mark(6))])
    assert (outcome.rows, outcome.reached, outcome.commands) == (3, {0: 10}, {0: (OTHER, Command("truncate"))})
    outcome = deliver(branch, [DeliveryRange(0, 11, 11, Mark(10))])
    assert (outcome.rows, outcome.reached, outcome.commands) == (0, {0: 11}, {})


@pytest.mark.parametrize("how", [deliver, lambda branch, ranges: deliver_singly(branch, ranges, Who("p", "w", 1), {})])
def test_a_writer_that_cannot_be_made_is_trouble_with_the_setup(log: CommitLog, tmp_path: Path, how: Any) -> None:
    """As where a task's process has not what the driver has: Spark would only say that a job was lost."""
    branch = Branch("p", "w", str(tmp_path / "home"), log.topic.name, "no_such_module:sink", {})
    trouble = how(branch, [DeliveryRange(0, 0, 0, Mark(-1))]).trouble
    assert trouble.cause == "setup"
    assert "there is no adaptor at 'no_such_module:sink'" in trouble.error


def test_changes_that_came_one_by_one_are_given_together_and_told_apart(log: CommitLog, tmp_path: Path) -> None:
    for n in range(40):
        log.take_in([change((TABLE, OTHER)[n % 2], n)], {"at": n})
    seen: list[int] = []

    def function(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        seen.append(batch.num_rows)
        found = batch.column("data").field(0).to_pylist()
        if 27 in found:
            error = BadInput("no 27")
            error.row = found.index(27)  # type: ignore[attr-defined]
            raise error
        return [batch]

    where = (str(tmp_path / "home"), log.topic.name, "tests.pipeline.toys:sink")
    branch = Branch("p", "w", *where, {"path": str(tmp_path)}, functions=(function,))
    outcome = deliver(branch, [DeliveryRange(0, 0, 40, Mark(-1))])
    assert seen == [20, 20]
    assert outcome.trouble is not None
    assert (outcome.trouble.namespace, outcome.trouble.offset, outcome.trouble.id) == (OTHER, 27, "27")
