"""What a writer does when its sink fails: waits, begins anew, goes one by one, or stops; and never twice."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Fenced, NotReady, NotThere, TailraceError
from tailrace.home import Home
from tailrace.log.write.append import commit
from tailrace.log.write.staged_chunk import place_staged, stage_chunks
from tailrace.pipeline.deliver import batch, delivery_jobs
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.functions import each
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.copying import _addressed
from tailrace.pipeline.operate import ledger, operator
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime.status import SinkStatus
from tests.pipeline.runs import going, until
from tests.pipeline.shop import definition, filled, flat, ids, sink
from tests.pipeline.toys import ToySink, rows

pytestmark = pytest.mark.spark


def faulty(path: Path, when: str, error: str) -> None:
    """One finish of c0 fails."""
    (path / "c0").mkdir(exist_ok=True)
    (path / "c0" / when).write_text(error)


@pytest.mark.parametrize("error", ["Unavailable", "DiskFull", "ValueError"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_finish_without_an_answer_is_waited_for_and_never_doubled(
    spark: SparkSession, tmp_path: Path, when: str, error: str
) -> None:
    faulty(tmp_path, when, error)
    made = definition(tmp_path, sink(tmp_path, exact=True), rows=20, changes=7, tables=("shop.orders",))
    Runner(made, spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 27, "the log has grown while it waited, and no range is there twice"
    assert not (tmp_path / "c0" / when).exists()


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of ten, and more than one message is much."""
    monkeypatch.setattr(delivery_jobs, "MAX_RECORDS_PER_TASK", 1)
    monkeypatch.setattr(batch, "MAX_RECORDS_PER_PARTITION", 10)


@pytest.mark.usefixtures("little")
def test_the_next_batch_is_staged_while_one_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 45)
    (tmp_path / "c0").mkdir()
    (tmp_path / "c0" / "slow").touch()
    with going(definition(tmp_path, sink(tmp_path), partitions=1, tables=()), spark):
        until(lambda: len(list((tmp_path / "c0").glob("*.staged"))) == 2)
        time.sleep(0.5)
        assert len(list((tmp_path / "c0").glob("*.staged"))) == 2, "one ahead, not more"
        assert rows(tmp_path / "c0") == []
        (tmp_path / "c0" / "slow").unlink()
        until(lambda: len(flat(tmp_path / "c0")) == 45)
    assert ids(tmp_path / "c0") == [list(range(n, min(n + 10, 45))) for n in range(0, 45, 10)]


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("error", ["Unavailable", "Rejected"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_staged_ahead_of_a_batch_that_failed_is_staged_again(
    spark: SparkSession, tmp_path: Path, when: str, error: str
) -> None:
    filled(tmp_path, "A" * 45)
    faulty(tmp_path, when, error)
    Runner(definition(tmp_path, sink(tmp_path, exact=True), partitions=1, tables=()), spark).run(once=True)
    assert flat(tmp_path / "c0") == list(range(45)), "each once, in order"


@pytest.mark.usefixtures("little")
def test_nothing_is_staged_past_a_command(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), changes=40, truncate=25, tables=("shop.orders",))
    Runner(made, spark).run(once=True)
    found = [(op, id) for _, id, op, _ in rows(tmp_path / "c0")]
    at = found.index(("truncate", ""))
    assert {int(id) for _, id in found[:at]} == set(range(1, 25))
    assert {int(id) for _, id in found[at + 1 :]} == set(range(26, 41))


@pytest.mark.parametrize(
    ("how", "batches"), [("singly", [[0], [1], [2], [3], [4], [5]]), ("halves", [[0, 1, 2], [3, 4, 5]])]
)
def test_a_finish_that_refuses_the_data_is_done_in_parts(
    spark: SparkSession, tmp_path: Path, how: str, batches: list[list[int]]
) -> None:
    filled(tmp_path, "A" * 6)
    faulty(tmp_path, "before", "Rejected")
    Runner(definition(tmp_path, sink(tmp_path, redeliver=how), partitions=1, tables=()), spark).run(once=True)
    assert ids(tmp_path / "c0") == batches


def test_a_run_begins_with_little(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is killed again and again gets somewhere each time, however much is pending."""
    monkeypatch.setattr("tailrace.pipeline.deliver.backlog.FIRST_RECORDS", 2)
    monkeypatch.setattr("tailrace.pipeline.deliver.batch.MAX_RECORDS_PER_PARTITION", 16)
    filled(tmp_path, "A" * 45)
    Runner(definition(tmp_path, sink(tmp_path), partitions=1, tables=()), spark).run(once=True)
    assert [len(batch) for batch in ids(tmp_path / "c0")] == [2, 8, 16, 16, 3]


def test_a_writer_hears_that_nothing_is_pending(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that it does in a quiet time what it has put off, such as merging."""
    heard: list[int] = []
    monkeypatch.setattr(ToySink, "idle", lambda self: heard.append(len(rows(tmp_path / "c0"))))
    with going(definition(tmp_path, sink(tmp_path), rows=20, tables=("shop.orders",)), spark):
        until(lambda: heard[-1:] == [20])


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


def test_a_message_without_an_answer_is_not_doubled_either(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 6)
    faulty(tmp_path, "after", "Unavailable")
    Runner(definition(tmp_path, sink(tmp_path, bulk=True, exact=True), partitions=1, tables=()), spark).run(once=True)
    assert ids(tmp_path / "c0") == [[0], [1], [2], [3], [4], [5]]


def test_what_was_under_way_cannot_be_finished_after_a_new_beginning(spark: SparkSession, tmp_path: Path) -> None:
    runner = Runner(definition(tmp_path, sink(tmp_path), partitions=1, tables=()), spark)
    runner.run(once=True)
    (outlet,) = runner._outlets
    old = outlet._who()
    outlet._begin(outlet.epoch)
    with pytest.raises(Fenced):
        outlet._writer.finish([], old, {})


def broken_at_17(message: Message) -> Message:
    if message.id == "17":
        raise KeyError("no customer")
    return message


@pytest.mark.parametrize("policy", ["stop", "skip", "dead_letter"])
def test_a_function_that_raises(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    filled(tmp_path, "A" * 20)
    broken = sink(tmp_path, on_error=policy, functions=(each(broken_at_17),))
    made = definition(tmp_path, broken, partitions=1, tables=())
    if policy == "stop":
        with pytest.raises(TailraceError, match=r"stopped at message 0:17 \(A, id 17\): KeyError: 'no customer'"):
            Runner(made, spark).run(once=True)
        assert flat(tmp_path / "c0") == list(range(17)), "all before it"
        made = definition(tmp_path, sink(tmp_path), partitions=1, tables=())
        Runner(made, spark).run(once=True)
        assert flat(tmp_path / "c0") == list(range(20)), "the same again when the cause is gone"
        return
    runner = Runner(made, spark)
    runner.run(once=True)
    assert flat(tmp_path / "c0") == [n for n in range(20) if n != 17]
    assert runner.status.sinks["c0"].skipped == 1
    with tailrace.open(tmp_path / "home") as home:
        buried = [(d["offset"], d["error"]) for d in operator.dead(home, "shop")]
    assert buried == ([(17, "KeyError: 'no customer'")] if policy == "dead_letter" else [])


def shown(runner: Runner) -> SinkStatus:
    return runner.status.sinks.get("c0", SinkStatus())


def test_how_far_behind_a_writer_is_that_has_stopped(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 20)
    broken = sink(tmp_path, functions=(each(broken_at_17),))
    made = definition(tmp_path, broken, partitions=1, changes=9, tables=("shop.orders",))
    with pytest.raises(TailraceError, match="stopped at message 0:17"), going(made, spark) as runner:
        until(lambda: shown(runner).state == "stopped")
        more(tmp_path)
        until(lambda: shown(runner).lag == 13, 20)


def test_how_long_the_oldest_message_has_waited(spark: SparkSession, tmp_path: Path) -> None:
    """Not how long the last one took that was delivered: a writer that is stuck would look as if all were well."""
    filled(tmp_path, "A" * 20)
    broken = sink(tmp_path, functions=(each(broken_at_17),))
    made = definition(tmp_path, broken, partitions=1, tables=())
    with pytest.raises(TailraceError, match="stopped at message 0:17"), going(made, spark) as runner:
        until(lambda: shown(runner).state == "stopped")
        until(lambda: shown(runner).oldest == 1017)
        until(lambda: runner.status.shown()["state"] == "following, every writer stopped")
        seen = runner.status.shown()["sinks"]["c0"]
        assert (seen["lag"], seen["age"]) == (3, pytest.approx(time.time() - 1.017, abs=30))
        with tailrace.open(tmp_path / "home") as home:
            until(lambda: _reported(home, "shop").get("oldest") == 1017)


def _reported(home: Home, pipeline: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = ledger.reported(home, pipeline)["sinks"]["c0"]
    except NotThere:
        return {}
    return found


def test_a_sink_that_stays_away_for_a_while(spark: SparkSession, tmp_path: Path) -> None:
    """Also while it is asked where to go on, again and again; meanwhile one sees how far behind it is."""
    with going(definition(tmp_path, sink(tmp_path), partitions=1, changes=9, tables=("shop.orders",)), spark) as runner:
        until(lambda: shown(runner).rows == 9)
        (tmp_path / "c0" / "gone").touch()
        more(tmp_path)
        until(lambda: shown(runner).state == "waiting")
        more(tmp_path)
        until(lambda: shown(runner).lag == 2, 20)
        time.sleep(3)
        assert shown(runner).state == "waiting"
        (tmp_path / "c0" / "gone").unlink()
        until(lambda: shown(runner).lag == 0)


def more(path: Path) -> None:
    """One more message in the log, by another process."""
    with tailrace.open(path / "home") as home:
        topic, one = home.topic("shop-log"), make_rows("A", pa.record_batch({"id": pa.array([99])}), ["id"])
        placed = home.store.run(place_staged(topic.log, [stage_chunks(home.store, topic.log, topic.described, [one])]))
        assert placed is not None
        home.store.run(commit([placed]))


def test_what_is_printed_is_printed_here_also_one_at_a_time(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task has no terminal: what it prints nobody sees."""
    filled(tmp_path, "A" * 20)
    broken = sink(tmp_path, on_error="skip", functions=(each(broken_at_17),))
    printing = replace(broken, adaptor="stdout", settings={})
    Runner(definition(tmp_path, printing, partitions=1, tables=()), spark).run(once=True)
    printed = [int(json.loads(line)["id"]) for line in capsys.readouterr().out.splitlines()]
    assert printed == [n for n in range(20) if n != 17]


def test_twenty_thousand_one_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """A loop inside one task, not a job for each."""
    slow = sink(tmp_path, bulk=True, silent=True, redeliver="singly")
    made = definition(tmp_path, slow, rows=20_000, tables=("shop.orders",))
    runner, began = Runner(replace(made, piece_rows=20_000), spark), time.monotonic()
    runner.run(once=True)
    assert time.monotonic() - began < 240, "a job for each message takes half an hour"
    assert runner.status.sinks["c0"].rows == 20_000


def test_a_sink_that_takes_no_batches_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """Halving costs twice as many attempts then, not more."""
    made = definition(tmp_path, sink(tmp_path, bulk=True, silent=True), rows=3_000, tables=("shop.orders",))
    runner = Runner(replace(made, piece_rows=3_000), spark)
    runner.run(once=True)
    assert runner.status.sinks["c0"].rows == 3_000


def test_a_new_writer_is_filled_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    Runner(definition(tmp_path, sink(tmp_path), rows=100, changes=3), spark).run(once=True)
    both = definition(tmp_path, sink(tmp_path), sink(tmp_path, "c1"), rows=100, changes=3)
    Runner(both, spark).run(once=True)
    assert sorted(map(str, rows(tmp_path / "c1"))) == sorted(map(str, rows(tmp_path / "c0")))
    assert len(rows(tmp_path / "c0")) == 203


def test_a_new_writer_is_filled_by_a_fresh_copy(spark: SparkSession, tmp_path: Path) -> None:
    Runner(definition(tmp_path, sink(tmp_path), rows=100, changes=3), spark).run(once=True)
    fresh = replace(sink(tmp_path, "c1"), fill="copy")
    for changes in (3, 5):  # it is filled once
        both = definition(tmp_path, sink(tmp_path), fresh, rows=100, changes=changes)
        Runner(both, spark).run(once=True)
    found = rows(tmp_path / "c1")
    assert {(ns, int(id)) for ns, id, _, v in found if v == "copied"} == {
        (ns, n) for ns in ("shop.orders", "shop.items") for n in range(100)
    }
    assert sorted(v for _, _, _, v in found if v != "copied") == ["change 4", "change 5"], "nothing of before"
    assert len(found) == 202
    assert len(rows(tmp_path / "c0")) == 205, "the copy was not for this one"


def test_a_fresh_copy_goes_on_after_a_crash(spark: SparkSession, tmp_path: Path) -> None:
    Runner(definition(tmp_path, sink(tmp_path), rows=100), spark).run(once=True)
    with tailrace.open(tmp_path / "home") as home:
        CommitLog(home, "shop", partitions=2).fill("c1")
    both = definition(tmp_path, sink(tmp_path), replace(sink(tmp_path, "c1"), fill="copy"), rows=100)
    Runner(both, spark).run(once=True)
    assert len(rows(tmp_path / "c1")) == 200
    assert len(rows(tmp_path / "c0")) == 200


def test_what_has_no_key_is_not_copied_afresh() -> None:
    keyless = make_rows("A", pa.record_batch({"n": pa.array([1])}), [])
    with pytest.raises(NotReady, match=r'A has no key: .* fill the writer \'c1\' from the log: fill="log"'):
        _addressed(keyless, "c1")
