"""Keys that change places: after each transaction every id has the row that it has in the source."""

from __future__ import annotations

import random

import pytest

from tailrace.adaptors.postgres.source import deferred_ids
from tailrace.adaptors.rows.rows import messages_of
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server

SWAP = "UPDATE s SET id = CASE id WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE id END"
SHIFT = "UPDATE s SET id = id + 1"


def table(source: Place, rows: int = 9) -> None:
    source.run("CREATE TABLE s (id int PRIMARY KEY DEFERRABLE, v text, big text)")
    source.run("ALTER TABLE s REPLICA IDENTITY FULL; ALTER TABLE s ALTER big SET STORAGE EXTERNAL")
    source.run("INSERT INTO s SELECT n, 'v' || n, repeat(n::text, 9000) FROM generate_series(1, %s::int) n", rows)


def started(source: Place, sink: Place | None, **reader: int) -> Drive:
    drive = Drive(source, sink, ["public.s"], reader=reader)
    drive.begin()
    drive.copy()
    drive.follow()
    return drive


def transaction(source: Place, *statements: str) -> None:
    with source.connection.transaction():
        source.run("SET CONSTRAINTS ALL DEFERRED")
        for sql in statements:
            source.run(sql)


STATEMENTS = {
    "swap": [SWAP],
    "swap and back": [SWAP, SWAP],
    "shift": [SHIFT],
    "shift down and up": ["UPDATE s SET id = id - 1", SHIFT],
    "swap and delete": [SWAP, "DELETE FROM s WHERE id = 1"],
    "one comes and goes": ["INSERT INTO s VALUES (1, 'guest')", "DELETE FROM s WHERE v = 'guest'"],
    "one comes, and the old one goes": ["INSERT INTO s VALUES (1, 'guest')", "DELETE FROM s WHERE v = 'v1'"],
    "the old one is changed meanwhile": [
        "INSERT INTO s VALUES (1, 'guest')",
        "UPDATE s SET v = 'changed' WHERE v = 'v1'",
        "DELETE FROM s WHERE v = 'guest'",
    ],
    "the new one is changed meanwhile": [
        "INSERT INTO s VALUES (1, 'guest')",
        "UPDATE s SET v = 'changed' WHERE v = 'guest'",
        "DELETE FROM s WHERE v = 'v1'",
    ],
    "two of the same": [
        "INSERT INTO s SELECT * FROM s WHERE id = 1",
        "DELETE FROM s WHERE ctid = (SELECT min(ctid) FROM s WHERE id = 1)",
    ],
    "in a circle": ["UPDATE s SET id = id % 9 + 1", "UPDATE s SET v = v || '!' WHERE id < 4"],
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_in_one_transaction(source18: Place, sink18: Place, name: str) -> None:
    table(source18)
    with started(source18, sink18) as drive:
        transaction(source18, *STATEMENTS[name])
        drive.follow()
        assert sink18.texts("s") == source18.texts("s")
        source18.run("UPDATE s SET v = 'later' WHERE id = 2")
        drive.follow()
    assert sink18.texts("s") == source18.texts("s")


def test_in_one_statement_on_both_versions(source: Place, sink: Place) -> None:
    table(source, 2)
    with started(source, sink) as drive:
        source.run(SWAP)
        drive.follow()
        assert sink.texts("s", "id, v") == source.texts("s", "id, v") == ["(1,v2)", "(2,v1)"]
        last = {m.id: m.op for batch in drive.seen for m in messages_of(batch)}
        assert last == {"1": Op.INSERT, "2": Op.INSERT}


def test_what_was_moved_on_by_the_time_the_table_is_asked(source18: Place, sink18: Place) -> None:
    table(source18)
    with started(source18, sink18) as drive:
        transaction(source18, *STATEMENTS["one comes and goes"])
        transaction(source18, SHIFT)
        transaction(source18, *STATEMENTS["one comes and goes"])
        transaction(source18, "DELETE FROM s WHERE id IN (2, 3)", SWAP)
        drive.follow()
    assert sink18.texts("s") == source18.texts("s")


@pytest.mark.parametrize("remembered", [2, deferred_ids.MAX_IDS])
def test_many_by_chance(source18: Place, sink18: Place, monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    """Small batches, so that a transaction is more than one of them; and few ids that are remembered."""
    monkeypatch.setattr(deferred_ids, "MAX_IDS", remembered)
    chance = random.Random(remembered)
    table(source18)
    with started(source18, sink18, batch_rows=5) as drive:
        for n in range(20):
            a, b, c = chance.sample(range(1, 12), 3)
            transaction(
                source18,
                *chance.sample(
                    [
                        f"UPDATE s SET id = CASE id WHEN {a} THEN {b} WHEN {b} THEN {c} WHEN {c} THEN {a} ELSE id END",
                        f"UPDATE s SET v = v || '{a}' WHERE id IN ({a}, {b})",
                        f"DELETE FROM s WHERE id = {c}",
                        f"INSERT INTO s SELECT {a}, 'new' WHERE NOT EXISTS (SELECT FROM s WHERE id = {a})",
                    ],
                    3,
                ),
            )
            if n % 4 == 3:
                drive.follow()
                assert sink18.texts("s", "id, v") == source18.texts("s", "id, v")
