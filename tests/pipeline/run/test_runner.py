"""Pipelines at work on real Spark: the document's runs, policies, commands, restarts."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.contract import Piece
from tailrace.errors import BadSetting, Fenced, HomeError, NotThere, TailraceError, Unavailable
from tailrace.home import Home
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import ledger, operator
from tailrace.pipeline.run import runner as runners
from tailrace.pipeline.run.runner import LEASE_WAIT, Runner
from tests.pipeline.runs import caught_up, going, until
from tests.pipeline.shop import definition, filled, flat, ids, sink
from tests.pipeline.toys import SinkSettings, ToySink, ToySource, rows

pytestmark = pytest.mark.spark


def test_copies_follows_and_filters(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), sink(tmp_path, "c1", "orders$"), rows=250, changes=7)
    runner = Runner(made, spark)
    runner.run(once=True)
    everything, orders = rows(tmp_path / "c0"), rows(tmp_path / "c1")
    assert len(everything) == 507
    assert len(orders) == 257
    assert {(ns, int(id)) for ns, id, op, _ in everything if op == "INSERT"} == {
        (ns, n) for ns in ("shop.orders", "shop.items") for n in range(250)
    }
    assert [op for _, _, op, _ in orders].count("UPDATE") == 7
    for id in ("1", "7"):
        states = [v for ns, i, _, v in everything if (ns, i) == ("shop.orders", id)]
        assert states == ["copied", f"change {id}"], "messages of one document come in order"
    assert runner.status.shown()["sources"]["shop.orders"]["changes"] == 7


def test_a_second_run_delivers_nothing_again(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), rows=100, changes=3)
    Runner(made, spark).run(once=True)
    Runner(made, spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 203


def test_the_documents_normal_run(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "AABBAABBCACBAACB", c0=12, c1=13)
    Runner(definition(tmp_path, sink(tmp_path), sink(tmp_path, "c1"), partitions=1, tables=()), spark).run(once=True)
    assert flat(tmp_path / "c0") == [13, 14, 15]
    assert flat(tmp_path / "c1") == [14, 15]


def test_the_documents_failure_and_the_operator(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 16, c0=8)
    failing = definition(tmp_path, sink(tmp_path, redeliver="singly", bad=14), partitions=1, tables=())
    with pytest.raises(TailraceError, match=r"stopped at message 0:14 \(A, id 14\): ValueError: cannot hold id 14"):
        Runner(failing, spark).run(once=True)
    assert ids(tmp_path / "c0") == [[9], [10], [11], [12], [13]], "one at a time, up to the one that fails"
    with tailrace.open(tmp_path / "home") as home:
        assert operator.marks(home, "shop", "c0")[0] == Mark(13)
        assert [m.message.data["id"] for m in operator.messages(home, "shop", {0: 14}, {0: 16})] == [14, 15]
        operator.mark(home, "shop", "c0", 0, 15, "known to be bad")
        assert operator.marks(home, "shop", "c0")[0] == Mark(15)
        assert [(n["what"], n["why"]) for n in ledger.notes(home, "shop")] == [("mark", "known to be bad")]
    Runner(failing, spark).run(once=True)
    assert len(ids(tmp_path / "c0")) == 5, "what the operator passed is not delivered"


def test_halves_blame_the_same_message_and_acknowledge_the_same_others(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, "A" * 16, c0=8)
    failing = definition(tmp_path, sink(tmp_path, bad=14), partitions=1, tables=())
    with pytest.raises(TailraceError, match=r"stopped at message 0:14 \(A, id 14\): ValueError: cannot hold id 14"):
        Runner(failing, spark).run(once=True)
    assert ids(tmp_path / "c0") == [[9, 10, 11], [12, 13]]
    with tailrace.open(tmp_path / "home") as home:
        assert operator.marks(home, "shop", "c0")[0] == Mark(13)


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_policies(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    filled(tmp_path, "A" * 10)
    made = definition(tmp_path, sink(tmp_path, on_error=policy, bad=4), partitions=1, tables=())
    Runner(made, spark).run(once=True)
    assert flat(tmp_path / "c0") == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    with tailrace.open(tmp_path / "home") as home:
        buried = [(d["offset"], d["id"]) for d in operator.dead(home, "shop")]
    assert buried == ([(4, "4")] if policy == "dead_letter" else [])


def test_one_writers_trouble_holds_nobody_back(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path, bad=5), sink(tmp_path, "c1"), rows=50, tables=("shop.orders",))
    with pytest.raises(TailraceError, match="'c0' stopped"):
        Runner(made, spark).run(once=True)
    assert len(rows(tmp_path / "c1")) == 50


def test_a_truncate_comes_after_everything_before_it(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), rows=60, changes=9, truncate=5, tables=("shop.orders",))
    Runner(made, spark).run(once=True)
    seen = [(op, v) for _, _, op, v in rows(tmp_path / "c0")]
    at = seen.index(("truncate", None))
    assert len(seen[:at]) == 60 + 4
    assert sorted(seen[at + 1 :]) == [("UPDATE", f"change {n}") for n in (6, 7, 8, 9)]


def test_a_sink_that_is_away_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), rows=20, tables=("shop.orders",))
    (tmp_path / "c0").mkdir()
    (tmp_path / "c0" / "away").touch()
    runner = Runner(made, spark)
    work = threading.Thread(target=runner.run, args=(True,))
    work.start()
    deadline = time.monotonic() + 60
    while runner.status.sinks.get("c0") is None or runner.status.sinks["c0"].state != "waiting":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (tmp_path / "c0" / "away").unlink()
    work.join(60)
    assert len(rows(tmp_path / "c0")) == 20


def test_one_run_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), tables=())
    with going(made, spark) as runner:
        until(lambda: runner.status.state == "following")
        began = time.monotonic()
        with pytest.raises(HomeError, match=f"is running already, in process {os.getpid()} on "):
            Runner(made, spark).run(once=True)
        assert time.monotonic() - began < LEASE_WAIT / 2, "one that is seen to live is not waited for"
    Runner(made, spark).run(once=True)


def test_a_run_of_another_machine_is_given_time_to_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.pipeline.run.runner.LEASE_WAIT", 0.5)
    made, told = definition(tmp_path, sink(tmp_path), tables=()), list[str]()
    with going(made, spark) as runner:
        until(lambda: runner.status.state == "following")
        monkeypatch.setattr("tailrace.pipeline.run.runner.is_alive", lambda shown: False)
        with pytest.raises(HomeError, match="is running already"):
            Runner(made, spark, told.append).run(once=True)
    assert told[0].startswith(f"waiting up to 0 s to see whether the run of process {os.getpid()} on ")


def test_a_start_while_a_sink_is_down(spark: SparkSession, tmp_path: Path) -> None:
    """Its writer waits, the others work; but what has never run may have a typo in its address."""
    made = definition(tmp_path, sink(tmp_path), sink(tmp_path, "c1"), tables=("shop.orders",), rows=5, changes=5)
    (tmp_path / "c0").mkdir()
    (tmp_path / "c0" / "gone").touch()
    with pytest.raises(Unavailable, match="the toy is away"):
        Runner(made, spark).run(once=True)
    (tmp_path / "c0" / "gone").unlink()
    Runner(made, spark).run(once=True)
    (tmp_path / "c0" / "gone").touch()
    more = definition(tmp_path, *made.sinks, tables=("shop.orders",), rows=5, changes=9)
    with going(more, spark) as runner:
        until(lambda: len(rows(tmp_path / "c1")) == 14)
        assert runner.status.shown()["sinks"]["c0"]["state"] == "waiting"
        assert runner.status.shown()["sinks"]["c0"]["error"] == "the toy is away"
        assert len(rows(tmp_path / "c0")) == 10
        (tmp_path / "c0" / "gone").unlink()
        until(lambda: caught_up(runner))
    assert len(rows(tmp_path / "c0")) == 14


def test_a_start_while_the_source_is_down(spark: SparkSession, tmp_path: Path) -> None:
    down = tmp_path / "down"
    down.touch()
    made = definition(tmp_path, sink(tmp_path), tables=("shop.orders",), rows=5, down=str(down))
    with pytest.raises(Unavailable, match="the toy shop is closed"):
        Runner(made, spark).run(once=True)
    down.unlink()
    Runner(made, spark).run(once=True)
    down.touch()
    with going(made, spark) as runner:
        until(lambda: runner.status.shown()["state"] == "waiting")
        assert runner.status.shown()["error"] == "the toy shop is closed"
        down.unlink()
        until(lambda: caught_up(runner))


def test_the_status_goes_on_though_a_reader_cannot_say_how_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(reader: ToySource) -> str:
        raise ZeroDivisionError("no health")

    monkeypatch.setattr(ToySource, "health", broken)
    made = definition(tmp_path, sink(tmp_path), tables=("shop.orders",), rows=5)
    with going(made, spark), tailrace.open(tmp_path / "home") as home:
        until(lambda: reported_state(home) == "following")


def reported_state(home: Home) -> str:
    """What other processes see of the run."""
    with suppress(NotThere):
        return str(ledger.reported(home, "shop")["state"])
    return ""


def test_a_run_says_what_has_changed(spark: SparkSession, tmp_path: Path) -> None:
    made, told = definition(tmp_path, sink(tmp_path), rows=10, tables=("shop.orders",)), list[str]()
    Runner(made, spark, told.append).run(once=True)
    Runner(made, spark, told.append).run(once=True)
    assert told == []
    Runner(definition(tmp_path, sink(tmp_path, on_error="skip"), rows=10), spark, told.append).run(once=True)
    assert told == [
        "changed since the last run: the source has another tables",
        "changed since the last run: on_error of the writer 'c0' was 'stop', is 'skip'",
    ]


def test_a_branch_that_matches_nothing_is_told_and_can_be_corrected(spark: SparkSession, tmp_path: Path) -> None:
    told: list[str] = []
    wrong = definition(tmp_path, sink(tmp_path, namespace="ordres$"), rows=5, tables=("shop.orders",))
    Runner(wrong, spark, told.append).run(once=True)
    assert told == ["the namespace 'ordres$' of the writer 'c0' matches nothing that is there; there are: shop.orders"]
    right = definition(tmp_path, sink(tmp_path, namespace="orders$"), rows=5, tables=("shop.orders",))
    Runner(right, spark, told.append).run(once=True)
    assert told[1].endswith("it has matched nothing so far, so it is filled from the start")
    assert len(rows(tmp_path / "c0")) == 5
    Runner(right, spark, told.append).run(once=True)
    assert (len(rows(tmp_path / "c0")), len(told)) == (5, 2)


def test_a_typo_is_no_change(spark: SparkSession, tmp_path: Path) -> None:
    told = list[str]()
    Runner(definition(tmp_path, sink(tmp_path), rows=10), spark, told.append).run(once=True)
    with pytest.raises(BadSetting, match="did you mean 'rows'"):
        Runner(definition(tmp_path, sink(tmp_path), rowss=10), spark, told.append).run(once=True)
    assert told == []


def test_a_run_that_would_lose_data_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    narrow = definition(tmp_path, sink(tmp_path, namespace="items$"), rows=10)
    Runner(narrow, spark).run(once=True)
    for made, why in [
        (definition(tmp_path, sink(tmp_path), rows=10), "of shop.orders it has passed over what is in the commit log"),
        (definition(tmp_path, sink(tmp_path), partitions=3, rows=10), "partitions was 2, is 3"),
    ]:
        with pytest.raises(BadSetting, match=why):
            Runner(made, spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 10
    Runner(narrow, spark).run(once=True)


def test_a_long_copy_does_not_hold_up_the_end(spark: SparkSession, tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), rows=10, tables=("shop.orders",), slow=12)
    with going(made, spark) as runner:
        until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
        runner.stop()
        began = time.monotonic()
    assert time.monotonic() - began < 8
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    assert rows(tmp_path / "c0") == []
    Runner(definition(tmp_path, sink(tmp_path), rows=10, tables=("shop.orders",)), spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 10


def test_a_run_thought_dead_changes_nothing(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        old = CommitLog(home, "shop", partitions=1)
        old.begin(0)
        new = CommitLog(home, "shop", partitions=1)
        new.plan("shop.orders", [Piece("shop.orders", [0, 10])])
        for late in (lambda: old.plan("shop.items", [Piece("shop.items", [0, 5])]), lambda: old.take_in([], 7)):
            with pytest.raises(Fenced, match="another run of 'shop' has begun"):
                late()
        new.refresh()
        assert (list(new.phases), new.position) == (["shop.orders"], 0)
        assert [piece.bounds for unit in new.units(["shop.orders"]) for piece in unit.pieces] == [[0, 10]]


@pytest.mark.parametrize("fails", ["__init__", "check", "leave_marks", "claim"])
def test_a_run_that_cannot_begin_closes_its_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    there: list[ToySink] = []
    make, close = ToySink.__init__, ToySink.close

    def made(self: ToySink, settings: SinkSettings) -> None:
        make(self, settings)
        if fails == "__init__" and there:
            raise ValueError("cannot begin")
        there.append(self)

    def closed(self: ToySink) -> None:
        close(self)
        there.remove(self)

    def failing(*given: object) -> None:
        raise ValueError("cannot begin")

    monkeypatch.setattr(ToySink, "__init__", made)
    monkeypatch.setattr(ToySink, "close", closed)
    if fails != "__init__":
        monkeypatch.setattr(runners if fails == "leave_marks" else ToySink, fails, failing)
    runner = Runner(definition(tmp_path, sink(tmp_path), sink(tmp_path, "c1")), lambda: pytest.fail("needs no Spark"))
    with pytest.raises(ValueError, match="cannot begin"):
        runner.run(once=True)
    assert there == []
