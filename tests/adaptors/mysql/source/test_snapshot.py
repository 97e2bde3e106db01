"""Snapshots whose transactions are known."""

from __future__ import annotations

import contextlib

import pytest

from tailrace.adaptors.mysql.database import Database
from tailrace.adaptors.mysql.gtid import executed
from tailrace.adaptors.mysql.source import snapshot
from tests.adaptors.mysql.place import Place


@pytest.mark.server
def test_a_cut_under_a_lock(source: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server on which something commits at all times."""
    monkeypatch.setattr(snapshot, "TRIES", 0)
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    place = executed(source.server.flavor, source.executed())
    database = Database(source.uri)
    with contextlib.closing(database.open()) as connection:
        found = snapshot.cut(database, connection, "t", place, 10)
        source.run("INSERT INTO t VALUES (2)")
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM t")
            assert cursor.fetchall() == ((1,),)
    assert found.covers(place)
    assert not found.covers(executed(source.server.flavor, source.executed()))
