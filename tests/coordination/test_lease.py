"""Leases keep their contract on every storage, and believe no clock but their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.coordination.lease import Beats, Lease, new_number
from tailrace.errors import Fenced, Unavailable
from tailrace.storage.calls import Store
from tailrace.storage.sqlite.database import SqliteDatabase
from tailrace.storage.sqlite.table import SqliteTable
from tailrace.testing import SimulatedObjects, SimulatedTable
from tailrace.testing.leasecontract import LeaseContract
from tests.servers.aws import table
from tests.servers.process import Server


class TestOnSimulatedStorage(LeaseContract):
    @pytest.fixture
    def store(self) -> Store:
        return Store(SimulatedTable(), SimulatedObjects())


class TestOnSimulatedStorageThatAnswersLikeDynamoDB(LeaseContract):
    @pytest.fixture
    def store(self) -> Store:
        return Store(SimulatedTable(answers=False), SimulatedObjects())


class TestOnSqlite(LeaseContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        made = Store(SqliteTable(SqliteDatabase(tmp_path / "tailrace.db")), SimulatedObjects())
        yield made
        made.close()


@pytest.fixture(scope="module")
def on_dynoxide(dynoxide: Server) -> Iterator[Store]:
    with table(dynoxide) as opened:
        yield Store(opened, SimulatedObjects())


@pytest.fixture(scope="module")
def on_moto(moto: Server) -> Iterator[Store]:
    with table(moto) as opened:
        yield Store(opened, SimulatedObjects())


@pytest.mark.server
class TestOnDynoxide(LeaseContract):
    @pytest.fixture
    def store(self, on_dynoxide: Store) -> Store:
        return on_dynoxide


@pytest.mark.server
class TestOnMoto(LeaseContract):
    @pytest.fixture
    def store(self, on_moto: Store) -> Store:
        return on_moto


# -- beats
def test_a_beat_seen_once_is_not_silent():
    beats = Beats(10)
    beats.look({"a": 1}, 0, 100)
    assert not beats.silent


def test_a_beat_that_stood_still_for_ttl_is_silent():
    beats = Beats(10)
    beats.look({"a": 1, "b": 1}, 0, 1)
    beats.look({"a": 1, "b": 2}, 10.9, 10.95)
    assert not beats.silent
    beats.look({"a": 1, "b": 2}, 11, 11)
    assert beats.silent == {"a"}


def test_a_taker_that_was_stopped_does_not_take_that_for_silence():
    """Stopped between its read and its clock, at either look: it has not watched for `ttl`."""
    beats = Beats(10)
    beats.look({"a": 1}, 0, 60)
    beats.look({"a": 1}, 61, 62)
    assert not beats.silent
    beats.look({"a": 1}, 65, 300)
    assert not beats.silent


def test_one_who_was_away_starts_anew():
    beats = Beats(10)
    beats.look({"a": 1}, 0, 0)
    beats.look({}, 5, 5)
    beats.look({"a": 1}, 20, 20)
    assert not beats.silent


def test_numbers_of_lives_are_never_zero_and_differ():
    assert new_number(lambda bits: 0) == 1
    assert len({new_number() for _ in range(1000)}) == 1000
    assert new_number() < 2**62


# -- one owner, with real threads and time
@pytest.fixture
def store() -> Store:
    return Store(SimulatedTable(), SimulatedObjects())


def test_beats_go_on_while_the_holder_works(store: Store):
    with Lease(store, "upkeep", ttl=0.15) as mine, Lease(store, "upkeep", ttl=0.15) as other:
        assert mine.acquire()
        assert not other.acquire(wait=0.6)
        assert mine.held


def test_a_holder_without_beats_is_relieved_and_knows_it_by_its_next_beat(store: Store):
    with Lease(store, "upkeep", ttl=0.3) as mine, Lease(store, "upkeep", ttl=0.05) as other:
        assert mine.acquire()
        assert other.acquire(wait=2)
        deadline = time.monotonic() + 2
        while mine.held and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not mine.held
        assert other.epoch == mine.epoch + 1
        mine.release()
        assert other.held
        with pytest.raises(Fenced, match="not held"):
            mine.check()


def test_storage_that_is_away_for_a_while_does_not_end_the_beats(store: Store):
    with Lease(store, "upkeep", ttl=1.0) as mine:
        assert mine.acquire()
        write, failed = store.table.write, []

        def away(*actions):
            failed.append(1)
            raise Unavailable("away")

        store.table.write = away  # type: ignore[method-assign]
        store.clock, clock = (lambda: 1e9 * len(failed)), store.clock  # patience runs out at once
        time.sleep(1.0)
        store.table.write, store.clock = write, clock  # type: ignore[method-assign]
        assert failed
        assert not Lease(store, "upkeep", ttl=1.0).acquire(wait=2.5)
