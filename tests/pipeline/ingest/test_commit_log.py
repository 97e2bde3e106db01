"""The commit log: of two runs that write it, beside each other or one after the other, each thing is there once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Piece
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Fenced
from tailrace.home import Home
from tailrace.log.write.staged_chunk import StagedChunks, stage_chunks
from tailrace.pipeline.ingest.commit_log import CommitLog

TABLE = "shop.orders"


@pytest.fixture
def home() -> Iterator[Home]:
    with tailrace.open("memory://") as home:
        yield home


def rows(*ids: int) -> pa.RecordBatch:
    return make_rows(TABLE, pa.RecordBatch.from_pydict({"id": list(ids)}), ["id"])


def packed(home: Home, log: CommitLog, *ids: int) -> StagedChunks:
    return stage_chunks(home.store, log.topic.log, log.topic.described, [rows(*ids)] if ids else [])


def records(log: CommitLog) -> int:
    return sum(end for _, end in log.topic.ends().values())


@pytest.fixture
def log(home: Home) -> CommitLog:
    """With a piece to be copied."""
    log = CommitLog(home, "shop", partitions=2)
    log.begin(0)
    log.plan(TABLE, [Piece(TABLE, [0, 3], 3)])
    return log


def test_a_piece_that_two_runs_have_read_is_there_once(home: Home, log: CommitLog) -> None:
    other = CommitLog(home, "shop", partitions=2)
    mine, others = packed(home, log, 0, 1, 2), packed(home, other, 0, 1, 2)
    assert log.commit_piece(0, [mine])
    assert not other.commit_piece(0, [others])
    assert records(log) == 3
    assert [unit.done for unit in log.units([TABLE])] == [True]


def test_a_piece_without_rows_is_done_whoever_says_so(home: Home, log: CommitLog) -> None:
    assert log.commit_piece(0, [packed(home, log)])
    assert CommitLog(home, "shop", partitions=2).commit_piece(0, [packed(home, log)])
    assert not log.commit_piece(0, [packed(home, log, 1)]), "it was empty, and is done"
    assert records(log) == 0


def test_a_run_that_another_has_followed_changes_nothing(home: Home, log: CommitLog) -> None:
    other = CommitLog(home, "shop", partitions=2)
    assert other.take_in([rows(1)], 5)
    for change in (
        lambda: log.plan("shop.items", []),
        lambda: log.set_phases({TABLE: {"phase": "sync", "first": 0, "count": 1}}),
        lambda: log.take_in([], 3),
        lambda: log.fill("w"),
        lambda: log.begin(0),
    ):
        with pytest.raises(Fenced, match="another run of 'shop' has begun"):
            change()
    assert log.take_in([rows(1)], 4) is False
    other.refresh()
    assert (other.position, records(other)) == (5, 1)
    assert [*other.phases] == [TABLE]
    assert other.phases[TABLE]["phase"] == "copy"
