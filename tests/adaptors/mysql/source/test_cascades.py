"""Rows that foreign keys change, which no log has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.adaptors.mysql.gtid import Gtid, GtidSet
from tailrace.adaptors.mysql.source.events import DELETES, INSERTS, TableMap
from tailrace.adaptors.mysql.source.transaction import Changed, Collected
from tailrace.errors import NotReady
from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place

PARENT, CHILD = "s.parent", "s.child"
SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class NoRows:
    """Stands in for a row decoder: events without rows."""

    columns, partial = (), False

    def rows(self, data: bytes) -> Iterator[Any]:
        return iter(())


def event(kinds: set[int]) -> bytes:
    return bytes([0, 0, 0, 0, min(kinds), *bytes(14)])


@pytest.fixture
def collected() -> Collected:
    """Within transaction 8; the rows of `child` refer to those of `parent`."""
    made = Collected(max_rows=100, max_bytes=1000, zero_dates=False, alive=lambda: None)
    made.cascades = {PARENT: {CHILD}}
    made.begin(Gtid(SOURCE, 8), 0)
    return made


def change(collected: Collected, kinds: set[int] = DELETES) -> None:
    """A change of the parent."""
    Changed(collected, TableMap(1, "s", "parent", ()), NoRows()).feed(event(kinds))  # type: ignore[arg-type]


def test_a_change_of_the_parent_has_the_child_copied_again(collected: Collected) -> None:
    change(collected, INSERTS)
    assert collected.unsettled == set()
    change(collected)
    assert collected.unsettled == {CHILD}


def test_a_parent_whose_own_copy_has_the_change(collected: Collected) -> None:
    collected.cuts = {PARENT: GtidSet(f"{SOURCE}:1-10")}
    change(collected)
    assert collected.unsettled == {CHILD}


def test_a_parent_that_is_to_be_copied_again(collected: Collected) -> None:
    collected.unsettled = {PARENT}
    change(collected)
    assert collected.unsettled == {PARENT, CHILD}


def test_a_child_whose_own_copy_has_the_change(collected: Collected) -> None:
    collected.cuts = {CHILD: GtidSet(f"{SOURCE}:1-10")}
    change(collected)
    assert collected.unsettled == set()


def test_a_transaction_that_is_prepared_only_changes_both_once_it_commits(collected: Collected) -> None:
    collected.undecided = True
    change(collected)
    assert (collected.touched, collected.unsettled) == ({PARENT, CHILD}, set())


FAMILY = (
    "CREATE TABLE p (id int PRIMARY KEY)",
    "CREATE TABLE c (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    "INSERT INTO p VALUES (1), (2)",
    "INSERT INTO c VALUES (1, 1), (2, 2), (3, 2)",
)


@pytest.mark.server
def test_a_parent_within_a_transaction_of_two_phases(source: Place) -> None:
    source.run(*FAMILY)
    with Drive(source, "p", "c", cascades="copy") as drive:
        drive.begin()
        drive.copy()
        source.run("XA START 'x'", "DELETE FROM p WHERE id = 2", "XA END 'x'", "XA PREPARE 'x'")
        source.hang_up()
        drive.follow()
        source.run("XA COMMIT 'x'")
        drive.follow()
        drive.assert_same()


@pytest.mark.server
def test_a_parent_that_is_not_followed(source: Place) -> None:
    source.run(*FAMILY)
    with Drive(source, "c", cascades="copy") as drive:
        drive.begin()
        drive.copy()
        source.run("DELETE FROM p WHERE id = 2")
        drive.follow()
        drive.assert_same()


@pytest.mark.server
def test_a_child_that_appears(source: Place) -> None:
    source.run("CREATE TABLE p (id int PRIMARY KEY)", "INSERT INTO p VALUES (1), (2)")
    with Drive(source, "p", cascades="copy") as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        source.run(FAMILY[1], "INSERT INTO c VALUES (1, 1), (2, 2)")
        drive.follow()
        source.run("DELETE FROM p WHERE id = 2")
        for _ in range(10):  # the same run, which yields something at least once in a second
            drive.step()
        drive.assert_same()


@pytest.mark.server
def test_rows_that_a_foreign_key_changes(source: Place) -> None:
    """No binlog has them: they are refused, or copied again."""
    source.run(
        "CREATE TABLE p (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "CREATE TABLE g (id int PRIMARY KEY, c int, FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL)",
        "INSERT INTO p VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1), (2, 2), (3, 2)",
        "INSERT INTO g VALUES (1, 1), (2, 2)",
    )
    names = [f"{source.name}.{table}" for table in ("p", "c", "g")]
    with pytest.raises(NotReady, match=f"{names[1]}, {names[2]}.*cascades = 'copy'"):
        source.reader().check_namespaces(names)
    source.reader().check_namespaces(names[:1])
    source.reader(cascades="leave").check_namespaces(names)
    with Drive(source, "p", "c", "g", cascades="copy") as drive:
        drive.begin()
        drive.copy()
        source.run("INSERT INTO p VALUES (3)", "DELETE FROM p WHERE id = 2", "INSERT INTO c VALUES (4, 1)")
        drive.follow()
        drive.assert_same()
        assert drive.recopied
