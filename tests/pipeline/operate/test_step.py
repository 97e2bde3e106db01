"""Messages by hand: one at a time, and dead letters once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.rows.rows import make_rows
from tailrace.coordination.lease import Lease
from tailrace.errors import HomeError, NotThere
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.log.upkeep.retention import raise_floor
from tailrace.pipeline.define.definition import Definition
from tailrace.pipeline.deliver.dead_letters import bury, dead_name
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.functions import opfilter
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.operate import dead_retry, ledger, operator
from tailrace.pipeline.operate import step as stepping
from tailrace.pipeline.operate.dead_retry import retry
from tailrace.pipeline.operate.step import step
from tailrace.pipeline.runtime.trouble import Trouble
from tests.pipeline.shop import definition, filled, flat, ids, sink
from tests.pipeline.toys import rows


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "MAX_WAIT_FOR_RUN_SECONDS", 0.1)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    (tmp_path / "c0").mkdir()
    with tailrace.open(tmp_path / "home") as made:
        yield made


def shop(path: Path, home: Home, **settings: Any) -> Definition:
    made = definition(path, sink(path, **settings), partitions=1, tables=())
    ledger.remember(home, made)
    return made


def outcomes(stepped: Iterator[stepping.Stepped]) -> list[tuple[int, str]]:
    return [(one.logged.offset, one.outcome) for one in stepped]


def test_one_at_a_time(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AAAA")
    made = shop(tmp_path, home, exact=True)
    assert outcomes(step(made, "c0", 1, "looking")) == [(0, "delivered")]
    assert outcomes(step(made, "c0", 9, "looking")) == [(1, "delivered"), (2, "delivered"), (3, "delivered")]
    assert outcomes(step(made, "c0", 1, "looking")) == []
    assert ids(tmp_path / "c0") == [[0], [1], [2], [3]]
    assert operator.marks(home, "shop", "c0") == {0: Mark(3)}
    assert next((n["what"], n["why"], n["count"]) for n in ledger.notes(home, "shop")) == ("step", "looking", 1)


@pytest.mark.parametrize("value", [b"no JSON", b"[1]", b"\xff", b'{"of": [], "refused": 1}', b'{"what": "mark"}', None])
def test_a_record_that_is_no_note_hides_none(home: Home, value: bytes | None) -> None:
    ledger.note(home, "shop", "mark", "known")
    home.topic("shop-actions").append([(b"shop", value)])
    number = ledger.note(home, "shop", "step", "looking")
    ledger.note_refusal(home, "shop", number, "not now")
    found = [(n["what"], n["why"], n.get("refused")) for n in ledger.notes(home, "shop")]
    assert found == [("mark", "known", None), ("a record that is no note", "", None), ("step", "looking", "not now")]


def test_one_that_fails_ends_it_whatever_the_policy(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AAAA")
    made = shop(tmp_path, home, bad=1, on_error="skip")
    *_, last = step(made, "c0", 9, "looking")
    assert (last.logged.offset, last.outcome, last.error) == (1, "failed", "ValueError: cannot hold id 1")
    assert operator.marks(home, "shop", "c0") == {0: Mark(0)}


def test_what_is_filtered_says_so(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AB")
    made = shop(tmp_path, home, namespace="B", functions=(opfilter("delete"),))
    assert outcomes(step(made, "c0", 9, "looking")) == [(0, "filtered"), (1, "filtered")]


def test_a_truncate_is_a_step_of_its_own(home: Home, tmp_path: Path) -> None:
    made = replace(shop(tmp_path, home), partitions=2)
    log = CommitLog(home, "shop", partitions=2)
    log.begin(0)
    columns = pa.record_batch({"command": pa.array(["truncate"])})
    rows_of = [make_rows("A", pa.record_batch({"id": pa.array([n])}), ["id"], mode=Mode.SYNC) for n in range(3)]
    log.take_in(rows_of, 1)
    log.take_in([make_rows("A", columns, [], op=Op.COMMAND, mode=Mode.SYNC)], 2)
    assert [outcome for _, outcome in outcomes(step(made, "c0", 9, "x"))] == ["delivered"] * 3 + ["carried out"]
    assert [op for _, _, op, _ in rows(tmp_path / "c0")] == ["INSERT"] * 3 + ["truncate"]


def truncated(home: Home, namespace: str, grown: int = 2) -> None:
    """A row in a log of two partitions, a truncate, perhaps more partitions, and many rows."""
    log = CommitLog(home, "shop", partitions=2)
    log.begin(0)
    columns = pa.record_batch({"command": pa.array(["truncate"])})
    log.take_in([make_rows("A", pa.record_batch({"id": pa.array([0])}), ["id"], mode=Mode.SYNC)], 1)
    log.take_in([make_rows(namespace, columns, [], op=Op.COMMAND, mode=Mode.SYNC)], 2)
    home.topic("shop-log").grow(grown) if grown > 2 else None
    log.take_in([make_rows("A", pa.record_batch({"id": pa.array(range(1, 40))}), ["id"], mode=Mode.SYNC)], 3)


def test_a_truncate_of_what_is_not_the_writers_is_not_carried_out(home: Home, tmp_path: Path) -> None:
    truncated(home, "B")
    made = replace(shop(tmp_path, home, namespace="A"), partitions=2)
    assert [outcome for _, outcome in outcomes(step(made, "c0", 2, "x"))] == ["delivered", "filtered"]
    assert [op for _, _, op, _ in rows(tmp_path / "c0")] == ["INSERT"]


def test_what_came_after_the_log_had_grown_comes_after(home: Home, tmp_path: Path) -> None:
    truncated(home, "A", grown=4)
    made = replace(shop(tmp_path, home), partitions=2)
    assert len(outcomes(step(made, "c0", 99, "x"))) == 41
    assert [op for _, _, op, _ in rows(tmp_path / "c0")] == ["INSERT", "truncate"] + ["INSERT"] * 39


def test_not_beside_a_run(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "A")
    made = shop(tmp_path, home)
    with Lease(home.store, "pipeline-shop") as lease:
        assert lease.acquire()
        with pytest.raises(HomeError, match="is running; stop it"):
            list(step(made, "c0", 1, "x"))
    with pytest.raises(NotThere, match="no writer 'c1'; it has: c0"):
        list(step(made, "c1", 1, "x"))


def buried(home: Home, *places: int) -> None:
    for at in places:
        bury(home, "shop", "c0", Trouble("cannot hold it", "data", 0, at, "A", str(at)))


def test_dead_letters_once_more(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AAAAAA", c0=5)
    made = shop(tmp_path, home, bad=3)
    buried(home, 1, 3, 4, 4)
    assert outcomes(retry(made, [], "mended")) == [(1, "delivered"), (3, "failed"), (4, "delivered")]
    assert flat(tmp_path / "c0") == [1, 4]
    assert [d["offset"] for d in operator.dead(home, "shop")] == [3], "what is delivered is no longer listed"
    assert operator.marks(home, "shop", "c0") == {0: Mark(5)}
    assert outcomes(retry(shop(tmp_path, home), [1], "mended")) == [(3, "delivered")]
    with pytest.raises(NotThere, match="no dead letter 1"):
        list(retry(made, [1], "again"))
    buried(home, 3)
    assert [d["offset"] for d in operator.dead(home, "shop")] == [3], "it can die again"


def test_a_dead_letter_that_cannot_be_placed_fails_alone(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, "AAA", c0=2)
    made, added = shop(tmp_path, home), dead_retry.placed
    buried(home, 0, 1)

    def placed(batch: pa.RecordBatch, partition: int, offsets: Any) -> pa.RecordBatch:
        if offsets.to_pylist() == [0]:
            raise pa.ArrowInvalid("damaged")
        return added(batch, partition, offsets)

    monkeypatch.setattr(dead_retry, "placed", placed)
    assert outcomes(retry(made, [], "mended")) == [(0, "failed"), (1, "delivered")]


def test_a_sink_that_is_exact_takes_several(home: Home, tmp_path: Path) -> None:
    """Their offsets are all the same, which must not look like the same batch again."""
    filled(tmp_path, "AAAA", c0=3)
    end = replace(sink(tmp_path), adaptor="tailrace", settings={"home": str(tmp_path / "topics"), "topic": "all"})
    made = definition(tmp_path, end, partitions=1, tables=())
    ledger.remember(home, made)
    buried(home, 0, 2)
    assert outcomes(retry(made, [], "mended")) == [(0, "delivered"), (2, "delivered")]
    with tailrace.open(tmp_path / "topics") as topics:
        assert sorted(r.key for r in topics.topic("all").records()) == [b"A\x000", b"A\x002"]


def test_what_is_newer_is_not_overwritten(home: Home, tmp_path: Path) -> None:
    log = CommitLog(home, "shop", partitions=1)
    log.begin(0)
    for n in range(3):
        columns = pa.record_batch({"id": pa.array([0]), "v": pa.array([f"state {n}"])})
        log.take_in([make_rows("A", columns, ["id"], mode=Mode.SYNC)], n)
    made = shop(tmp_path, home)
    assert outcomes(step(made, "c0", 2, "x")) == [(0, "delivered"), (1, "delivered")]
    buried(home, 0, 1)
    assert outcomes(retry(made, [], "mended")) == [(0, "overtaken"), (1, "delivered")]
    assert operator.dead(home, "shop") == []


def test_what_is_newer_may_be_in_another_partition(home: Home, tmp_path: Path) -> None:
    """The log has grown since: its documents are elsewhere now."""
    log = CommitLog(home, "shop", partitions=1)
    log.begin(0)
    for n, partitions in enumerate((1, 3, 7)):
        if partitions > 1:
            home.topic("shop-log").grow(partitions)
        columns = pa.record_batch({"id": pa.array([0, 1, 2]), "v": pa.array([f"state {n}"] * 3)})
        log.take_in([make_rows("A", columns.slice(0, 3 - n), ["id"], mode=Mode.SYNC)], n)
    made = replace(shop(tmp_path, home), partitions=7)
    stepped = list(step(made, "c0", 99, "x"))
    assert len(stepped) == 6
    for one in stepped[:3]:
        bury(home, "shop", "c0", Trouble("cannot hold it", "data", one.logged.partition, one.logged.offset, "A", "0"))
    assert [(one.logged.message.id, one.outcome) for one in retry(made, [], "mended")] == [
        ("0", "overtaken"),
        ("1", "overtaken"),
        ("2", "delivered"),
    ]


def test_what_was_truncated_since_does_not_come_back(home: Home, tmp_path: Path) -> None:
    truncated(home, "A")
    made = replace(shop(tmp_path, home), partitions=2)
    first, *_ = step(made, "c0", 99, "x")
    place = first.logged.partition, first.logged.offset
    bury(home, "shop", "c0", Trouble("cannot hold it", "data", *place, "A", "0"))
    assert outcomes(retry(made, [], "mended")) == [(place[1], "overtaken")]
    assert [op for _, _, op, _ in rows(tmp_path / "c0")] == ["INSERT", "truncate"] + ["INSERT"] * 39


def removed(home: Home, below: int) -> None:
    """Retention, of the commit log's messages below an offset."""
    topic = home.topic("shop-log")
    home.store.run(raise_floor(topic.log, {0: below}))
    assert topic.ends()[0][0] == below


def test_a_dead_letter_has_its_message_when_the_log_no_longer_has(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AAAAAA", c0=5)
    made = shop(tmp_path, home)
    buried(home, 1, 3, 5)
    removed(home, 4)
    assert operator.dead_one(home, "shop", 0)[1].data == {"id": 1, "v": "A"}
    one, two, three = retry(made, [], "mended")
    assert [s.outcome for s in (one, two, three)] == ["failed", "delivered", "delivered"]
    assert "removed messages that came after it" in one.error, "they may have been newer states of the same document"
    assert "dead retry FILE 0" in one.error
    assert outcomes(retry(made, [0], "nothing newer is there")) == [(1, "delivered")]
    assert sorted(flat(tmp_path / "c0")) == [1, 3, 5]
    assert operator.dead(home, "shop") == []


def test_a_dead_letter_of_an_earlier_version_works_while_the_log_has_its_message(home: Home, tmp_path: Path) -> None:
    filled(tmp_path, "AAAA", c0=3)
    made = shop(tmp_path, home)
    for at in (0, 2):
        letter = {"writer": "c0", "partition": 0, "offset": at, "namespace": "A", "id": str(at), "error": "no"}
        home.topic(dead_name("shop"), partitions=1).append([(b"c0", msgspec.json.encode(letter))])
    removed(home, 2)
    assert outcomes(retry(made, [1], "mended")) == [(2, "delivered")]
    with pytest.raises(NotThere, match=r"0:0 is no longer in the commit log .* kept only its place"):
        list(retry(made, [0], "mended"))


def test_a_dead_letter_may_be_as_large_as_a_message(home: Home, tmp_path: Path) -> None:
    log = CommitLog(home, "shop", partitions=1)
    log.begin(0)
    columns = pa.record_batch({"id": pa.array([0]), "v": pa.array(["v" * 14_000_000])})
    log.take_in([make_rows("A", columns, ["id"], mode=Mode.SYNC)], 1)
    buried(home, 0)
    assert len(operator.dead_one(home, "shop", 0)[1].data["v"]) == 14_000_000
    assert "row" not in operator.dead(home, "shop")[0]
