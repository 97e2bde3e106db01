"""What a writer does when its sink fails: waits, begins anew, goes one by one, or stops; and never twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.errors import Fenced, TailraceError
from tailrace.pipeline import operator
from tailrace.pipeline.definition import Definition
from tailrace.pipeline.offsets import Mark
from tailrace.pipeline.runner import Runner
from tests.pipeline.shop import definition, filled, flat, ids, sink
from tests.pipeline.toys import rows

pytestmark = pytest.mark.spark


def faulty(path: Path, when: str, error: str) -> None:
    """One finish of c0 fails."""
    (path / "c0").mkdir(exist_ok=True)
    (path / "c0" / when).write_text(error)


@contextmanager
def going(made: Definition, spark: SparkSession) -> Iterator[Runner]:
    """A run that follows; stopped at the end, and raised what it raised."""
    runner, failed = Runner(made, spark), list[BaseException]()

    def work() -> None:
        try:
            runner.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield runner
    finally:
        runner.stop()
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("error", ["Unavailable", "TimedOut", "DiskFull"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_finish_without_an_answer_is_waited_for_and_never_doubled(
    spark: SparkSession, tmp_path: Path, when: str, error: str
) -> None:
    faulty(tmp_path, when, error)
    made = definition(tmp_path, sink(tmp_path, exact=True), rows=20, changes=7, tables=("shop.orders",))
    Runner(made, spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 27, "the log has grown while it waited, and no range is there twice"
    assert not (tmp_path / "c0" / when).exists()


def test_a_finish_that_refuses_the_data_is_done_one_by_one(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 6)
    faulty(tmp_path, "before", "Rejected")
    Runner(definition(tmp_path, sink(tmp_path), partitions=1, tables=()), spark).run(once=True)
    assert ids(tmp_path / "c0") == [[0], [1], [2], [3], [4], [5]]


def test_every_seventh_batch_fails(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path, every=7, exact=True), rows=5000, tables=("shop.orders",))
    Runner(replace(made, piece_rows=50), spark).run(once=True)
    assert sorted(flat(tmp_path / "c0")) == list(range(5000))


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@pytest.mark.parametrize("error", ["Fenced", "NotReady"])
def test_what_is_no_messages_fault_skips_none(spark: SparkSession, tmp_path: Path, policy: str, error: str) -> None:
    filled(tmp_path, "A" * 6)
    faulty(tmp_path, "before", error)
    made = definition(tmp_path, sink(tmp_path, on_error=policy), partitions=1, tables=())
    with pytest.raises(TailraceError, match="'c0' stopped: made to fail; mend the cause and run again"):
        Runner(made, spark).run(once=True)
    assert ids(tmp_path / "c0") == []
    Runner(made, spark).run(once=True)
    assert flat(tmp_path / "c0") == [0, 1, 2, 3, 4, 5]


def test_a_run_claims_its_sinks_before_anything(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), tables=())
    for epoch in ("1", "2"):
        with going(made, spark) as runner:
            until(lambda: runner.status.state == "following")
            assert (tmp_path / "c0" / "epoch").read_text() == epoch, "an earlier run can finish nothing any more"


def test_an_operator_fences_the_run_and_the_next_obeys(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 6)
    made = definition(tmp_path, sink(tmp_path, exact=True), partitions=1, tables=())
    Runner(made, spark).run(once=True)
    with pytest.raises(TailraceError, match="taken over by another run or an operator"), going(made, spark) as runner:
        until(lambda: runner.status.state == "following")
        with tailrace.open(tmp_path / "home") as home:
            operator.mark(home, "shop", "c0", 0, 3, "again")
        until(lambda: runner.status.sinks["c0"].state == "stopped")
    faulty(tmp_path, "before", "Unavailable")  # the word holds also where the sink remembers more, and through a fault
    Runner(made, spark).run(once=True)
    assert flat(tmp_path / "c0") == [0, 1, 2, 3, 4, 5, 4, 5]
    with tailrace.open(tmp_path / "home") as home:
        operator.forget(home, "shop", "c0", "all of it")
        assert operator.marks(home, "shop", "c0") == {0: Mark()}
    Runner(made, spark).run(once=True)
    assert flat(tmp_path / "c0")[8:] == [0, 1, 2, 3, 4, 5]


def test_a_sink_thought_dead_is_fenced_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 4)
    made = definition(tmp_path, sink(tmp_path), partitions=1, tables=())
    with going(made, spark) as runner:
        until(lambda: len(flat(tmp_path / "c0")) == 4)
        (outlet,) = runner._outlets
        old = outlet._who()
        outlet._begin(outlet.epoch)
        with pytest.raises(Fenced):
            outlet._writer.finish([], old, {})
