"""The publication: what it has of a table."""

from __future__ import annotations

import psycopg
import pytest

from tailrace.adaptors.postgres.source.publication import published, published_sql
from tests.adaptors.postgres.place import Place

ODD = ("%s", "a%s%%", "a{0}{name}", "it's \\")


@pytest.mark.server
def test_names_like_placeholders(source18: Place) -> None:
    """Tables and publications have any name."""
    with psycopg.connect(source18.uri, autocommit=True) as connection:
        for n, name in enumerate(ODD):
            table = f'"{name}"."t{name}"'
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
            connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)".encode())
            connection.execute(f'CREATE PUBLICATION "{name}" FOR TABLE {table} WHERE (id > {n})'.encode())
            (found,) = connection.execute(published_sql(name, f"{name}.t{name}").encode()).fetchall()
            assert found == (1, ["id"], f"(id > {n})")
            assert published(connection, name, f"{name}.t{name}") == (["id"], f"(id > {n})")
