"""Tables that leave their name and come back to it: what changed meanwhile is in the log under another name."""

from __future__ import annotations

import re

import pytest

from tailrace.errors import NotReady
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server

SETUP = """
CREATE SCHEMA elsewhere;
CREATE TABLE a (id int PRIMARY KEY, v text);
CREATE TABLE b (id int PRIMARY KEY, v text);
CREATE TABLE keyless (id int, v text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
INSERT INTO a SELECT n, 'a' FROM generate_series(1, 20) n;
INSERT INTO b SELECT n, 'b' FROM generate_series(11, 30) n;
INSERT INTO keyless SELECT n, 'k' FROM generate_series(1, 20) n;
"""
CHANGE = "DELETE FROM {0} WHERE id % 3 = 0; UPDATE {0} SET v = 'changed' WHERE id % 5 = 0"
SWAP = "BEGIN; ALTER TABLE a RENAME TO c; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b; COMMIT"
CASES = {
    "renamed": ("ALTER TABLE a RENAME TO away", CHANGE.format("away"), "ALTER TABLE away RENAME TO a"),
    "moved": (
        "ALTER TABLE a SET SCHEMA elsewhere", CHANGE.format("elsewhere.a"), "ALTER TABLE elsewhere.a SET SCHEMA public",
    ),
    "swapped": (SWAP, CHANGE.format("a"), SWAP),
    "without a key": (
        "ALTER TABLE keyless RENAME TO away", CHANGE.format("away"), "ALTER TABLE away RENAME TO keyless",
    ),
}  # fmt: skip


@pytest.mark.parametrize("orders", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("seen", ["at once", "after each", "by one run after the other"])
def test_a_table_that_comes_back_has_what_changed_meanwhile(
    source18: Place, sink18: Place, orders: tuple[str, ...], seen: str
) -> None:
    tables = ["public.a", "public.b", "public.keyless"]
    source18.run(SETUP)
    with Drive(source18, sink18, tables, reader={"identity": "full"}) as drive:
        drive.begin()
        drive.copy()
        source18.run("UPDATE a SET v = v; UPDATE b SET v = v; UPDATE keyless SET v = v")
        drive.catch_up()
        for order in orders:
            source18.run(order)
            if seen == "after each":
                drive.follow()
            if seen == "by one run after the other":
                drive.catch_up()
        source18.run("INSERT INTO a VALUES (100, 'last'); INSERT INTO keyless VALUES (100, 'last')")
        drive.catch_up()
    for table in ("a", "b", "keyless"):
        assert sink18.texts(table) == source18.texts(table), table


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("found", ["at a start", "while it is followed"])
def test_what_a_former_table_of_a_new_name_had_does_not_come_over_the_copy(
    source18: Place, sink18: Place, found: str, key: str
) -> None:
    """A followed table got the name and was dropped, all before anybody looked; another one has the name now."""
    source18.run(SETUP)
    with Drive(source18, sink18, ["public.a"], reader={"identity": "full"}) as drive:
        drive.begin()
        drive.copy()
        drive.catch_up()
        drive.stop()
        source18.run("ALTER TABLE a RENAME TO late")
        source18.run("INSERT INTO late VALUES (200, 'former'); UPDATE late SET v = 'former' WHERE id < 5")
        source18.run(f"DROP TABLE late; CREATE TABLE late (id int {key}, v text); INSERT INTO late VALUES (1, 'new')")
        if found == "at a start":
            drive.namespaces += drive.copy(["public.late"])
        drive.catch_up()
        drive.catch_up()
    assert sink18.texts("late") == source18.texts("late")


def test_a_column_of_the_key_that_gets_another_name(source18: Place, sink18: Place) -> None:
    """The sink's key follows: no row would fill the old one."""
    source18.run(SETUP + "ALTER TABLE a DROP CONSTRAINT a_pkey; ALTER TABLE a ADD PRIMARY KEY (v, id)")
    with Drive(source18, sink18, ["public.a"]) as drive:
        drive.begin()
        drive.copy()
        drive.catch_up()
        source18.run("UPDATE a SET v = 'first' WHERE id = 1; ALTER TABLE a RENAME id TO number")
        drive.catch_up()
        source18.run("UPDATE a SET v = 'then' WHERE number = 2; DELETE FROM a WHERE number = 3")
        drive.catch_up()
    assert sink18.texts("a", "v, number") == source18.texts("a", "v, number")


def test_a_column_of_the_key_that_gets_another_name_where_nothing_may_be_altered(
    source18: Place, sink18: Place
) -> None:
    source18.run(SETUP)
    with Drive(source18, sink18, ["public.a"], writer={"alter": False}) as drive:
        drive.begin()
        drive.copy()
        drive.catch_up()
        source18.run("ALTER TABLE a RENAME id TO number")
        with pytest.raises(NotReady, match="alter") as caught:
            drive.catch_up()
        sink18.run(re.findall(r"ALTER TABLE .*? ADD PRIMARY KEY \(\"number\"\)", str(caught.value))[-1])
        drive.catch_up()
    assert sink18.texts("a", "v, number") == source18.texts("a", "v, number")
