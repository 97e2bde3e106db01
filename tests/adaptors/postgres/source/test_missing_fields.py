"""Fetching what the log left out."""

from __future__ import annotations

import psycopg
import pytest

from tailrace.adaptors.postgres import catalog
from tailrace.adaptors.postgres.source.missing_fields import fetch
from tailrace.adaptors.postgres.source.pgoutput import UNSET
from tests.adaptors.postgres.place import Place


@pytest.mark.server
@pytest.mark.parametrize("name", ["%s::text[]", "%s", "a%%", "{0}"])
def test_columns_and_tables_with_names_like_placeholders(source18: Place, name: str) -> None:
    with psycopg.connect(source18.uri, autocommit=True) as connection:
        connection.execute(f'CREATE TABLE "{name}" ("{name}" int PRIMARY KEY, v text)'.encode())
        connection.execute(f"INSERT INTO \"{name}\" VALUES (1, 'a'), (2, 'b')".encode())
        columns = catalog.table(connection, name).columns
        rows: list[list[object]] = [[b"2", UNSET], [b"3", UNSET]]
        assert fetch(connection, ("public", name), columns, [0], rows) == [True, False]
    assert rows == [[b"2", b"b"], [b"3", UNSET]]
