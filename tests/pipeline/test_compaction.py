"""Compaction and retention of commit logs: never past what a writer has not acknowledged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace
from tailrace.adaptors.rows.rows import messages_of
from tailrace.coordination.rules import without
from tailrace.errors import BadInput, BadSetting
from tailrace.home import Home
from tailrace.log.upkeep.compaction.round import upkeep_key
from tailrace.log.upkeep.retention_holds import held
from tailrace.log.upkeep.scheduler import HomeUpkeep, UpkeepPace
from tailrace.log.upkeep.topic_upkeep import UpkeepResult
from tailrace.log.write.attempt import roll
from tailrace.pipeline.deliver.offsets import Mark, offsets_key, override
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import operator
from tailrace.pipeline.operate.ledger import remember
from tailrace.pipeline.operate.step import step
from tailrace.pipeline.run.runner import Runner
from tailrace.storage.tables import Delete
from tests.pipeline.shop import definition, filled, flat, sink
from tests.pipeline.toys import rows

OLD, ACTIVE = "AABBAABBCACBAACBA", "AABBAABBCAC"


def close(home: Home) -> None:
    topic = home.topic("shop-log")
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))


def document(path: Path, mark: Mark | None, by: str = "namespace") -> Home:
    """The commit log of the source document's example: an old segment, and an active one."""
    filled(path, OLD)
    with tailrace.open(path / "home") as home:
        close(home)
    filled(path, ACTIVE)
    home = tailrace.open(path / "home")
    log = CommitLog(home, "shop", partitions=1)
    log.hold([offsets_key("shop", "c0", 0)])
    log.compact(by)  # type: ignore[arg-type]
    if mark is not None:
        home.store.run(override("shop", "c0", 0, mark))
    return home


def told(home: Home) -> str:
    fetched = home.topic("shop-log").fetch()
    rows = [(n, m) for f in fetched for n, m in zip(f.offsets.to_pylist(), messages_of(f.data), strict=True)]
    return " ".join(f"{n}{m.namespace}" for n, m in rows)


KEPT = " ".join(f"{n}{key}" for n, key in enumerate(ACTIVE, 17))
ALL = " ".join(f"{n}{key}" for n, key in enumerate(OLD + ACTIVE))


def test_the_example_of_the_document(tmp_path: Path) -> None:
    mark = Mark(23, {"A": 26, "C": 27})
    with document(tmp_path, mark) as home:
        home.upkeep()
        assert told(home) == f"14C 15B 16A {KEPT}"
        pending = [n for n, key in enumerate(OLD + ACTIVE) if mark.pending(key, n)]
        assert pending == [24]
        assert home.store.run(held(home.topic("shop-log").id, [0])) == {0: 24}


@pytest.mark.parametrize("mark", [None, Mark(), Mark(3), Mark(15, {"A": 26})])
def test_a_writer_that_has_not_acknowledged_all_of_it_holds_it(tmp_path: Path, mark: Mark | None) -> None:
    with document(tmp_path, mark) as home:
        home.topic("shop-log").configure(retention_ms=1)
        home.upkeep()
        assert told(home) == ALL


def test_past_a_pending_message_something_is_lost(tmp_path: Path) -> None:
    with document(tmp_path, Mark(3)) as home, without("upkeep.held"):
        home.upkeep()
        assert told(home) != ALL


def test_the_slowest_of_all_writers_counts(tmp_path: Path) -> None:
    with document(tmp_path, Mark(27)) as home:
        CommitLog(home, "shop", partitions=1).hold(offsets_key("shop", writer, 0) for writer in ("c0", "c1"))
        home.upkeep()
        assert told(home) == ALL
        home.store.run(override("shop", "c1", 0, Mark(16)))
        home.upkeep()
        assert told(home) == f"14C 15B 16A {KEPT}"


def test_documents_are_kept_one_by_one(tmp_path: Path) -> None:
    with document(tmp_path, Mark(27), "document") as home:
        home.upkeep()
        assert told(home) == ALL  # each message is of another document


def test_retention_goes_as_far_as_all_writers_have(tmp_path: Path) -> None:
    with document(tmp_path, Mark(20)) as home:
        topic = home.topic("shop-log")
        topic.configure(compact=False, retention_ms=1)
        home.upkeep()
        assert told(home) == KEPT
        assert topic.ends()[0] == (17, 28)


def test_a_step_finds_the_next_message_behind_a_gap(tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), partitions=1)
    (tmp_path / "c0").mkdir()
    with document(tmp_path, Mark(27)) as home:
        home.upkeep()
        remember(home, made)
        home.store.run(override("shop", "c0", 0, Mark()))
    found = [stepped.logged.offset for stepped in step(made, "c0", 4, "again")]
    assert found == [14, 15, 16, 17]


@pytest.mark.spark
def test_a_run_delivers_a_compacted_log_again(spark: SparkSession, tmp_path: Path) -> None:
    with document(tmp_path, Mark(27)) as home:
        home.upkeep()
        home.store.run(override("shop", "c0", 0, Mark()))
    Runner(definition(tmp_path, sink(tmp_path), partitions=1, tables=()), spark).run(once=True)
    old = [14, 15, 16]
    assert sorted(flat(tmp_path / "c0")) == sorted([*old, *range(len(ACTIVE))])  # the second part has ids from 0 on
    with tailrace.open(tmp_path / "home") as home:
        assert home.store.run(held(home.topic("shop-log").id, [0])) == {0: 28}


@pytest.mark.spark
def test_upkeep_in_the_background_of_a_run_never_fails_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fail(self: HomeUpkeep) -> list[UpkeepResult]:
        tried.append(1)
        raise ZeroDivisionError("not today")

    monkeypatch.setattr(HomeUpkeep, "run", fail)
    made = definition(tmp_path, sink(tmp_path), rows=50)
    Runner(replace(made, upkeep_seconds=0.01, compact_by="document"), spark).run(once=True)
    assert len(rows(tmp_path / "c0")) == 100
    assert tried
    with tailrace.open(tmp_path / "home") as home:
        assert home.topic("shop-log").settings.compact


def test_only_a_complete_log_may_fill_a_new_writer(tmp_path: Path) -> None:
    with document(tmp_path, Mark(27)) as home:
        log = CommitLog(home, "shop", partitions=1)
        assert log.complete
        home.upkeep()
        assert not log.complete
    with document(tmp_path / "b", Mark(27), "document") as home:
        home.upkeep()
        assert CommitLog(home, "shop", partitions=1).complete
        home.topic("shop-log").configure(retention_ms=1)
        home.upkeep()
        assert not CommitLog(home, "shop", partitions=1).complete


@pytest.mark.parametrize("upkeep", ["compact", "retention"])
def test_a_writer_that_was_left_out_is_not_taken_back_where_upkeep_has_removed_what_it_lacks(
    tmp_path: Path, upkeep: str
) -> None:
    """A delete may be among it: the sink would keep the row for ever."""
    both = definition(tmp_path, sink(tmp_path, "c0"), sink(tmp_path, "c1"), partitions=1)
    with document(tmp_path, Mark(3)) as home:
        log = CommitLog(home, "shop", partitions=1)
        home.store.run(override("shop", "c1", 0, Mark(27)))
        remember(home, replace(both, sinks=both.sinks[1:]))
        log.hold([offsets_key("shop", "c1", 0)])
        assert log.has_all_since({0: 4})
        Runner(both, _no_spark)._check_returned(log)
        home.topic("shop-log").configure(**({"compact": False, "retention_ms": 1} if upkeep == "retention" else {}))
        home.upkeep()
        assert not log.has_all_since({0: 4})
        assert log.has_all_since({0: 17}), "nothing is missing from there on"
    with pytest.raises(BadSetting, match="'c0' was left out of 'shop' for a while, and upkeep has removed messages"):
        Runner(both, _no_spark).run()
    with tailrace.open(tmp_path / "home") as home:
        home.store.run(override("shop", "c0", 0, Mark(20)))
        Runner(both, _no_spark)._check_returned(CommitLog(home, "shop", partitions=1))


def _no_spark() -> SparkSession:
    raise AssertionError("it needs none")


@pytest.mark.parametrize("how", ["copied", "cut off"])
def test_a_log_is_not_complete_though_nobody_noted_that_it_was_compacted(tmp_path: Path, how: str) -> None:
    with document(tmp_path, Mark(27)) as home:
        home.upkeep()
        if how == "copied":
            home.copy(tmp_path / "copy")
        else:
            home.store.table.write(Delete(upkeep_key(home.topic("shop-log").id)))
    with tailrace.open(tmp_path / ("copy" if how == "copied" else "home")) as home:
        assert told(home) == "14C 15B 16A " + KEPT
        assert not CommitLog(home, "shop", partitions=1).complete


def test_a_writer_that_is_marked_lower_in_the_middle_of_a_compaction_gets_the_last_state(tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), partitions=1)
    with document(tmp_path, Mark(27), "document") as home:
        remember(home, made)
        close(home)
        before = states(home, 3)
        lowered: list[int] = []

        def lower(topic: str, bytes: int) -> None:
            if not lowered:
                lowered.append(operator.mark(home, "shop", "c0", 0, 2, "again, from there").low)

        HomeUpkeep(home.store, UpkeepPace(told=lower)).run()
        assert (lowered, told(home)) == ([2], " ".join([*ALL.split()[11:17], KEPT]))
        assert states(home, 3) == before


def states(home: Home, start: int) -> dict[str, object]:
    """The last state of each document in the log from an offset on."""
    found = operator.messages(home, "shop", {0: start}, {0: 28})
    return {f"{m.namespace} {m.id}": m.data for _, _, m in found}


def test_a_mark_below_what_retention_has_left_is_refused_and_forgetting_starts_there(tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path), partitions=1)
    with document(tmp_path, Mark(20)) as home:
        remember(home, made)
        home.topic("shop-log").configure(compact=False, retention_ms=1)
        home.upkeep()
        with pytest.raises(BadInput, match="begins with 0:17, what came before was removed; 0:16 delivers all that is"):
            operator.mark(home, "shop", "c0", 0, 15, "again")
        assert operator.mark(home, "shop", "c0", 0, 16, "again").low == 16
        operator.forget(home, "shop", "c0", "all of it")
        assert operator.marks(home, "shop", "c0")[0].resume == 17


def test_what_a_definition_may_say(tmp_path: Path) -> None:
    made = definition(tmp_path, sink(tmp_path))
    replace(made, compact_by="document").check()
    with pytest.raises(BadSetting, match="compact_by"):
        replace(made, compact_by="documents").check()  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="upkeep_seconds"):
        replace(made, upkeep_seconds=0).check()
