"""What is known of a source, however many tables and files it has, in items that each stay small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Piece
from tailrace.adaptors.rows.rows import make_rows
from tailrace.coordination import guard
from tailrace.errors import Fenced
from tailrace.home import Home
from tailrace.log.record import Mode
from tailrace.log.write.source_append import reader_key
from tailrace.pipeline.ingest import reader_state
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.ingest.reader_state import parts_of
from tailrace.storage.aws.dynamodb import open_table
from tailrace.storage.calls import Store
from tailrace.storage.tables import Absent, Key, Put
from tailrace.testing.simulatedobjects import SimulatedObjects
from tests.servers.aws import new_table
from tests.servers.process import Server


@pytest.fixture
def home() -> Iterator[Home]:
    with tailrace.open("memory://") as made:
        yield made


@pytest.fixture
def dynamodb(dynoxide: Server, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    table = open_table(new_table(dynoxide), home="test", region="us-east-1", endpoint=dynoxide.url)
    return Home("test", Store(table, SimulatedObjects()))


def opened(home: Home) -> CommitLog:
    return CommitLog(home, "shop", partitions=2)


def begun(home: Home, position: Any = 0) -> CommitLog:
    log = opened(home)
    log.begin(position)
    return log


def stored(home: Home) -> tuple[dict[str, Any], set[int]]:
    item = home.store.run(guard.read(reader_key("shop")))
    assert item is not None
    return dict(item), {part["i"] for part in home.store.run(guard.read_all(parts_of("shop")))}


def change(name: str, id: int = 0) -> pa.RecordBatch:
    columns = pa.record_batch({"id": pa.array([id]), "v": pa.array(["x" * 200])})
    return make_rows(name, columns, ["id"], mode=Mode.SYNC, timestamp=1000 + id)


def test_a_small_state_is_one_item_as_it_always_was(home: Home) -> None:
    log = begun(home, {"lsn": "0/1", "cuts": {}, "forms": {"a": "1"}})
    log.plan("a", [Piece("a", [0, 1], 1)])
    log.take_in([change("a")], {"lsn": "0/2", "cuts": {}, "forms": {"a": "1"}})
    item, parts = stored(home)
    assert not parts
    assert set(item["phases"]) == {"a"}
    assert msgspec.json.decode(item["position"]) == {"lsn": "0/2", "cuts": {}, "forms": {"a": "1"}}
    assert opened(home).phases == log.phases
    assert opened(home).position == log.position


def check_many(home: Home, tables: int, touched: int) -> None:
    names = [f"public.a_table_with_a_rather_long_name_{n:06d}" for n in range(tables)]
    forms = {name: f"{n:08x}" for n, name in enumerate(names)}
    log = begun(home, {"lsn": "0/1", "forms": forms})
    for at in range(0, tables, 1000):
        log.plan_all({name: [Piece(name, [0, 1], 10)] for name in names[at : at + 1000]})
    assert len(log.units(names)) == tables // 100
    log.set_phases({name: {**phase, "phase": "sync"} for name, phase in log.phases.items()})
    position = {"lsn": "0/2", "forms": {**forms, names[7]: "other"}}
    log.take_in([change(name, n) for n, name in enumerate(names[:touched])], position, keep_last=True)
    again = opened(home)
    assert again.position == position
    assert again.phases == log.phases
    assert {phase["phase"] for phase in again.phases.values()} == {"sync"}
    assert again.phases[names[touched - 1]]["last"]["id"] == str(touched - 1)
    assert "last" not in again.phases[names[touched]]
    log.take_in([change(names[0], 99)], {**position, "lsn": "0/3"}, keep_last=True)
    item, parts = stored(home)
    assert parts == set(item["parts"].values()), "what nothing refers to is removed"
    assert len(parts) > 2
    assert opened(home).position == {**position, "lsn": "0/3"}


@pytest.mark.parametrize("tables", [4000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_very_many_tables(home: Home, tables: int) -> None:
    check_many(home, tables, 1000)


@pytest.mark.server
def test_many_tables_in_one_group_of_changes_on_dynamodb(dynamodb: Home) -> None:
    """An expression has 4 KB there: some 250 tables at once were too many."""
    check_many(dynamodb, 1000, 400)


def check_files(home: Home, count: int) -> None:
    """As a folder's position is: an entry for each file."""
    position = {f"logs/2026/11/18/{n:07d}.jsonl": ["logs", "jsonl", 0, 100 + n, 100, n] for n in range(count)}
    log = begun(home, position)
    _, before = stored(home)
    name = next(iter(position))
    moved = {**position, name: ["logs", "jsonl", 0, 1_000_000, 1024, 7]}
    log.take_in([change("logs")], moved)
    _, after = stored(home)
    assert len(after & before) == len(before) - 1, "of many parts one is written anew"
    gone = {key: value for key, value in moved.items() if key != name}
    log.take_in([change("logs", 1)], gone)
    assert opened(home).position == gone


def test_very_many_files(home: Home) -> None:
    check_files(home, 20_000)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_million_files(tmp_path: Any) -> None:
    with tailrace.open(tmp_path) as home:
        check_files(home, 1_000_000)


def test_fresh_copies_for_a_writer_are_kept_the_same_way(home: Home) -> None:
    log = begun(home)
    names = [f"public.{'t' * 50}{n:05d}" for n in range(2000)]
    log.plan_all({name: [Piece(name)] for name in names})
    log.fill("late")
    log.plan_all({name: [Piece(name)] for name in names}, "late")
    assert log.starts("late") == {0: 0, 1: 0}
    again = opened(home)
    assert again.starts("late") == {0: 0, 1: 0}
    assert again.phases_for("late") == log.phases_for("late")
    assert len(again.phases) == 2000


def test_whoever_comes_too_late_changes_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_state, "INLINE_BYTES", 10)
    position = {"a": [1], "b": [2]}
    mine, other = begun(home, position), opened(home)
    assert mine.take_in([change("t")], {"a": [3], "b": [2]})
    assert not other.take_in([change("t")], {"a": [4], "b": [2]})
    with pytest.raises(Fenced):
        other.set_phases({"t": {"phase": "sync"}})
    assert opened(home).position == {"a": [3], "b": [2]}
    _, parts = stored(home)
    again = opened(home)
    assert again.take_in([change("t")], {"a": [5], "b": [2]})
    item, left = stored(home)
    assert left == set(item["parts"].values()) != parts, "what the late one has left behind is tidied up"
    assert opened(home).position == {"a": [5], "b": [2]}


def test_a_run_that_was_cut_off_leaves_nothing_for_good(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_state, "INLINE_BYTES", 10)
    begun(home, {"a": [1]})
    home.store.run(guard.attempt(Put(Key(parts_of("shop"), 77), {"entries": b"x"}, (Absent(),))))
    log = opened(home)
    assert log.position == {"a": [1]}
    log.take_in([change("t")], {"a": [2]})
    item, parts = stored(home)
    assert parts == set(item["parts"].values())


def test_pieces_of_an_earlier_version_are_copied(home: Home) -> None:
    log = begun(home)
    old = {"namespace": "t", "bounds": "[0,9]", "rows": 9, "done": False, "records": 0, "id": "", "page": 0}
    home.store.run(guard.attempt(Put(Key("$Pieces-shop", 0), old, (Absent(),))))
    log.set_phases({"t": {"phase": "copy", "first": 0, "count": 1}})
    (unit,) = log.units(["t"])
    assert unit.pieces == (Piece("t", [0, 9], 9),)
    assert log.commit_piece(unit.number, [])
    assert log.units(["t"])[0].done
