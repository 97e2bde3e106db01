"""A table that is emptied before the sink has anything of it, its schema included."""

from __future__ import annotations

import pytest

from tests.adaptors.postgres.driver import Drive
from tests.adaptors.postgres.place import Place


@pytest.mark.server
def test_a_truncate_comes_before_the_sink_has_the_schema(source18: Place, sink18: Place) -> None:
    source18.run("CREATE SCHEMA odd; CREATE TABLE odd.t (id int PRIMARY KEY)")
    with Drive(source18, sink18, ["odd.t"]) as drive:
        drive.begin()
        drive.copy()
        source18.run("TRUNCATE odd.t")
        source18.run("INSERT INTO odd.t VALUES (1)")
        drive.follow()
    assert sink18.texts("odd.t") == ["(1)"]
