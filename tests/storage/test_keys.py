"""Keys of any name and kind: their order as bytes is that of their values, and the bytes lead back to them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import BadInput
from tailrace.storage.keys import HOME, Bounds, KeySchema, sortable
from tailrace.storage.tables import Key

NUMBERS = st.integers(-(10**37), 10**37) | st.decimals(
    allow_nan=False, allow_infinity=False, min_value=Decimal("-1e20"), max_value=Decimal("1e20"), places=10
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(NUMBERS, NUMBERS)
def test_numbers_compare_as_their_bytes(a: Any, b: Any) -> None:
    assert (a < b, a == b) == (sortable(a) < sortable(b), sortable(a) == sortable(b))


@given(TEXTS, TEXTS)
def test_texts_compare_as_their_bytes(a: str, b: str) -> None:
    assert (a < b) == (sortable(a) < sortable(b))


@given(NUMBERS, TEXTS)
def test_columns_lead_back_to_the_key(number: Any, text: str) -> None:
    schema = KeySchema("who", "S", "at", "N")
    assert schema.from_columns(*schema.columns(Key(text, number))) == (text, number)
    turned = KeySchema("at", "N", "what", "B")
    assert turned.from_columns(*turned.columns(Key(number, text.encode()))) == (number, text.encode())  # type: ignore[arg-type]
    assert HOME.from_columns(*HOME.columns(Key(text, 5))) == (text, 5)


@given(TEXTS, TEXTS)
def test_a_prefix_is_what_begins_so(prefix: str, text: str) -> None:
    wanted = Bounds(prefix=prefix).comparisons()
    compare = {">=": lambda a, b: a >= b, "<": lambda a, b: a < b}
    found = all(compare[operator](sortable(text), bound) for operator, bound in wanted)
    assert found == text.startswith(prefix)


@pytest.mark.parametrize(
    ("schema", "key", "why"),
    [
        (KeySchema("id", "S", None), Key(5), "is text"),  # type: ignore[arg-type]
        (KeySchema("id", "S", None), Key(""), "1 to 2,048 bytes"),
        (KeySchema("id", "S", None), Key("ä" * 1025), "not 2,050"),
        (KeySchema("id", "S", "at", "B"), Key("a", b"x" * 1025), "1 to 1,024 bytes"),  # type: ignore[arg-type]
        (KeySchema("id", "N", None), Key(True), "is a number"),  # type: ignore[arg-type]
        (KeySchema("id", "N", None), Key(Decimal("NaN")), "finite"),  # type: ignore[arg-type]
        (KeySchema("id", "N", None), Key(10**38 + 1), "38 digits"),  # type: ignore[arg-type]
        (HOME, Key("a", -1), "from 0 to"),
    ],
)
def test_keys_that_no_table_holds(schema: KeySchema, key: Key, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        schema.check(key)


@pytest.mark.parametrize(
    ("schema", "bounds", "why"),
    [
        (KeySchema("id", "S", None), Bounds(low=5), "no range key"),
        (KeySchema("id", "S", "at", "N"), Bounds(low="5"), "is a number"),
        (KeySchema("id", "S", "at", "N"), Bounds(low=1, high=2, low_open=True), "both are included"),
        (KeySchema("id", "S", "at", "S"), Bounds(prefix=b"a"), "is text"),
    ],
)
def test_bounds_that_no_query_has(schema: KeySchema, bounds: Bounds, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        bounds.check(schema)
