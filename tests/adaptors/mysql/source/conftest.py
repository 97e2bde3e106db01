"""Fixtures of a source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adaptors.mysql.drive import Drive
from tests.adaptors.mysql.place import Place


@pytest.fixture
def drive(source: Place) -> Iterator[Drive]:
    """A table with a key and one without, copied, and followed from before that."""
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20), w int)",
        "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        "CREATE TABLE bare (a int, b varchar(9))",
        "INSERT INTO bare VALUES (1, 'x'), (1, 'x'), (2, 'y')",
    )
    with Drive(source, "t", "bare") as made:
        made.begin()
        made.copy()
        made.follow()
        yield made
