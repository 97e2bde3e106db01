"""Connections that are used again: only in order, answering, young, and by the process that opened them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import psycopg
import pytest

from tailrace.adaptors.postgres import connection_pool
from tailrace.adaptors.postgres.database import Database
from tests.adaptors.postgres.place import Place


@pytest.fixture(autouse=True)
def none_kept() -> Iterator[None]:
    connection_pool.forget()
    yield
    connection_pool.forget()


class Fake:
    """A connection that says what was done with it."""

    def __init__(self) -> None:
        self.adbc_connection, self.closed, self.broken = self, False, False
        self.autocommit: list[bool] = []

    def set_autocommit(self, on: bool) -> None:
        self.autocommit.append(on)

    def cursor(self) -> Fake:
        return self

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, _: str) -> None:
        if self.broken:
            raise adbc_driver_manager.OperationalError("gone", status_code=adbc_driver_manager.AdbcStatusCode.IO)

    def fetchall(self) -> list[Any]:
        return []

    def close(self) -> None:
        self.closed = True


def used(info: str = "a") -> Fake:
    with connection_pool.lent(info, Fake) as connection:
        assert not connection.closed
        return connection


def test_it_is_lent_again_in_a_transaction_of_its_own() -> None:
    first = used()
    assert first.autocommit == [True], "nobody is left in a transaction"
    assert used() is first
    assert first.autocommit == [True, False, True]
    assert used("b") is not first


def test_two_at_once_are_two() -> None:
    with connection_pool.lent("a", Fake) as one, connection_pool.lent("a", Fake) as other:
        assert one is not other


@pytest.mark.parametrize("error", [ValueError, GeneratorExit])
def test_after_an_error_it_is_closed(error: type[BaseException]) -> None:
    with pytest.raises(error), connection_pool.lent("a", Fake) as first:
        raise error
    assert first.closed
    assert used() is not first


def test_one_that_does_not_answer_is_replaced() -> None:
    first = used()
    first.broken = True
    assert used() is not first
    assert first.closed


def test_an_old_one_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    first = used()
    monkeypatch.setattr(connection_pool, "MAX_AGE_SECONDS", 0.0)
    assert used() is not first
    assert first.closed


def test_few_are_kept() -> None:
    some = [used(info) for info in "abc"]
    assert [one.closed for one in some] == [True, False, False]


def test_a_fork_opens_its_own_and_leaves_its_parents_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = used()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert used() is not first
    connection_pool.forget()
    assert not first.closed


def test_of_a_server_that_has_ended_it(sink18: Place) -> None:
    database = Database(sink18.uri)

    def pid() -> int:
        with database.lent() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    first = pid()
    assert pid() == first
    with psycopg.connect(sink18.uri, autocommit=True) as other:
        sql = "SELECT state FROM pg_stat_activity WHERE pid = %s"
        assert other.execute(sql, [first]).fetchone() == ("idle",), "not in a transaction"
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert pid() != first
