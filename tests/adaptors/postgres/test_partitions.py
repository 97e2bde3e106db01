"""Partitions that bring rows or take them along: no log says so, and the table is copied again."""

from __future__ import annotations

import psycopg
import pyarrow as pa
import pytest

from tailrace.adaptors.postgres.source.alterations import Alterations, forms
from tailrace.adaptors.rows.rows import namespace_of, ops_of
from tailrace.log.record import Op
from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

pytestmark = pytest.mark.server

SETUP = """
CREATE TABLE t (id int, region int, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE t_rest PARTITION OF t DEFAULT;
CREATE TABLE t_7 PARTITION OF t FOR VALUES IN (7);
INSERT INTO t SELECT n, n % 10, 'copied' FROM generate_series(1, 100) n;
CREATE TABLE older (LIKE t INCLUDING ALL);
"""
FILL = "INSERT INTO {} SELECT n, {}, 'attached' FROM generate_series(1001, 1009) n"
NEWER = "CREATE TABLE newer (LIKE t INCLUDING ALL); " + FILL.format("newer", 11) + "; {}"
ATTACH = "ALTER TABLE t ATTACH PARTITION newer FOR VALUES IN (11)"
DEEP = f"""
CREATE TABLE deep (LIKE t INCLUDING ALL) PARTITION BY RANGE (id); CREATE TABLE deep_all PARTITION OF deep DEFAULT;
{FILL.format("deep", 12)}; ALTER TABLE t ATTACH PARTITION deep FOR VALUES IN (12);
"""
CASES = {
    "attached": [NEWER.format(""), ATTACH],
    "attached at once": [f"BEGIN; {NEWER.format(ATTACH)}; COMMIT"],
    "attached, and older than the others": [
        FILL.format("older", 13), "ALTER TABLE t ATTACH PARTITION older FOR VALUES IN (13)",
    ],
    "attached with partitions of its own": [DEEP],
    "detached": ["ALTER TABLE t DETACH PARTITION t_7"],
    "detached, and another one attached": ["ALTER TABLE t DETACH PARTITION t_7", NEWER.format(ATTACH)],
    "dropped": ["DROP TABLE t_7"],
    "made, filled and dropped": [
        "CREATE TABLE t_20 PARTITION OF t FOR VALUES IN (20)", FILL.format("t", 20), "DROP TABLE t_20",
    ],
    "attached, changed and detached": [
        NEWER.format(ATTACH), "UPDATE t SET v = 'seen' WHERE region = 11 AND id % 2 = 0",
        "ALTER TABLE t DETACH PARTITION newer", "UPDATE t SET v = 'later' WHERE region = 3",
    ],
}  # fmt: skip


@pytest.mark.parametrize("orders", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("away", [False, True], ids=["followed", "while nobody followed"])
def test_what_a_partition_does_to_rows_arrives(source18: Place, sink18: Place, orders: list[str], away: bool) -> None:
    source18.run(SETUP)
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        if away:
            drive.stop()
        for order in orders:
            source18.run(order)
        source18.run("INSERT INTO t VALUES (2001, 1, 'later')")
        drive.catch_up()
    assert sink18.texts("t") == source18.texts("t")


@pytest.mark.parametrize("gone", ["ALTER TABLE t DETACH PARTITION t_7", "DROP TABLE t_7"])
def test_that_rows_went_with_a_partition_is_known_until_the_table_is_copied(source: Place, gone: str) -> None:
    """The log may describe the table anew before the catalog is looked at for its sake: then it is looked at twice."""
    source.run(SETUP)
    names, altered = ["public.t"], Alterations(leave=False)
    with psycopg.connect(source.uri, autocommit=True) as connection:
        known = forms(connection, names)
        assert altered.find(connection, names, known) == (known, set())
        source.run(gone)
        for _ in range(2):
            assert altered.find(connection, names, known) == ({}, {"public.t"})
        now = forms(connection, names)
        altered.forget(names)
        assert altered.find(connection, names, now) == (now, set())
        assert altered.find(connection, names, {}) == ({}, {"public.t"}), "nothing is known of it"


@pytest.mark.parametrize("killed", [False, True])
def test_a_partition_that_goes_while_its_table_waits_to_be_copied(source: Place, killed: bool) -> None:
    """Its changes are in the sinks by then, also if the run was killed meanwhile: so the table is emptied first."""
    source.run(SETUP)
    names, altered = ["public.t"], Alterations(leave=False)
    with psycopg.connect(source.uri, autocommit=True) as connection:
        known = forms(connection, names)
        altered.find(connection, names, known)
        source.run(NEWER.format(ATTACH))
        kept, emptied = altered.find(connection, names, known)
        assert (list(kept), emptied, bool(altered)) == (names, set(), True)
        if killed:
            altered = Alterations(leave=False)
            assert altered.find(connection, names, kept) == (kept, set())
            altered = Alterations(leave=False)
        source.run("ALTER TABLE t DETACH PARTITION newer")
        assert altered.find(connection, names, kept) == ({}, {"public.t"})
        assert not altered


def test_a_new_partition_whose_rows_the_log_has_costs_no_copy(source: Place, sink: Place) -> None:
    source.run(SETUP)
    with Drive(source, sink, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        for stopped in (False, True):
            if stopped:
                drive.stop()
            name = f"t_{20 + stopped}"
            source.run(f"CREATE TABLE {name} PARTITION OF t FOR VALUES IN ({20 + stopped})")
            source.run(FILL.format("t", 20 + stopped))
            drive.catch_up()
        copied = [batch for batch in drive.seen if batch.num_rows and namespace_of(batch) == "public.t"]
    assert not drive.altered
    assert sum(map(_commands, copied)) == 0
    assert sink.texts("t") == source.texts("t")


def _commands(batch: pa.RecordBatch) -> int:
    return sum(op == int(Op.COMMAND) for op in ops_of(batch).to_pylist())


def test_it_can_be_left(source18: Place, sink18: Place) -> None:
    source18.run(SETUP)
    before = source18.texts("t")
    with Drive(source18, sink18, ["public.t"], reader={"altered": "leave"}) as drive:
        drive.begin()
        drive.copy()
        drive.follow()
        source18.run("DROP TABLE t_7")
        drive.catch_up()
    assert sink18.texts("t") == before
