"""Names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptors.postgres.names import literal, namespace, parts, quote

name = st.text(min_size=1, max_size=12) | st.text(alphabet='a."', min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("schema", "table", "written"),
    [
        ("public", "orders", "public.orders"),
        ("public", "Order Items", "public.Order Items"),
        ("a.b", "c", '"a.b".c'),
        ("a", "b.c", 'a."b.c"'),
        ("a", 'say "hi"', 'a."say ""hi"""'),
    ],
)
def test_namespaces(schema: str, table: str, written: str) -> None:
    assert namespace(schema, table) == written
    assert parts(written) == (schema, table)


@given(name, name)
def test_there_and_back(schema: str, table: str) -> None:
    assert parts(namespace(schema, table)) == (schema, table)


def test_namespaces_of_other_sources() -> None:
    assert parts("orders") == ("public", "orders")
    assert parts("orders", "sales") == ("sales", "orders")
    assert parts("shop.public.orders") == ("shop", "public.orders")


def test_sql() -> None:
    assert quote("a", 'b"c') == '"a"."b""c"'
    assert literal("it's") == "'it''s'"
