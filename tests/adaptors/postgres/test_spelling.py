"""Ids that are written otherwise and are equal to an index: 1.0 and 1.00, 24 hours and a day."""

from __future__ import annotations

import pytest

from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place

FORMS = {
    "numeric": ("n", "id * 1.0"),
    "interval": ("n * interval '24 hours'", "justify_hours(id)"),
    "jsonb": ("jsonb_build_object('n', n)", "jsonb_build_object('n', (id->>'n')::numeric * 1.0)"),
    "float8": ("CASE n WHEN 1 THEN 0 ELSE n END", "CASE id WHEN 0 THEN float8 '-0' ELSE id END"),
}


@pytest.mark.server
@pytest.mark.parametrize("type", FORMS)
def test_a_row_whose_id_is_spelled_otherwise_stays(source18: Place, sink18: Place, type: str) -> None:
    made, spelled = FORMS[type]
    source18.run(f"CREATE TABLE t (id {type} PRIMARY KEY, v text)")
    source18.run(f"INSERT INTO t SELECT {made}, 'copied' FROM generate_series(1, 40) n")
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        source18.run(f"UPDATE t SET id = {spelled}")
        drive.follow()
        assert sink18.texts("t") == source18.texts("t")
        source18.run(f"UPDATE t SET id = {spelled}, v = 'changed'")
        source18.run("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t ORDER BY id LIMIT 5)")
        drive.follow()
    assert sink18.texts("t") == source18.texts("t")


@pytest.mark.server
def test_a_sink_that_writes_ids_otherwise_still_finds_them(source18: Place, sink18: Place) -> None:
    """The sink's own type says how an id is written there, not the source's."""
    source18.run("CREATE TABLE t (id int, k varchar(10), v text, PRIMARY KEY (id, k))")
    source18.run("INSERT INTO t SELECT n, 'k' || n, 'copied' FROM generate_series(1, 9) n")
    sink18.run("CREATE TABLE t (id numeric(10,2), k character(12), v text, PRIMARY KEY (id, k))")
    with Drive(source18, sink18, ["public.t"]) as drive:
        drive.begin()
        drive.copy()
        source18.run("DELETE FROM t WHERE id < 5")
        drive.follow()
    assert sink18.ask("SELECT id::int, k::text FROM t ORDER BY 1") == source18.ask("SELECT id, k FROM t ORDER BY 1")
