"""Items as JSON: everything comes back as it was."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tailrace.adaptors.dynamodb.item_json import from_plain_text, from_text, number_text, to_text
from tailrace.errors import BadInput
from tests.adaptors.dynamodb.values import VALUES


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back(name: str) -> None:
    value = VALUES[name]
    assert from_text(to_text(value)) == value
    assert _kinds(from_text(to_text(value))) == _kinds(value)
    assert from_text(to_text({"x": [value]})) == {"x": [value]}


def _kinds(value: Any) -> Any:
    """Kinds, of which an int and a Decimal are one."""
    if isinstance(value, dict):
        return {name: _kinds(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_kinds(inner) for inner in value]
    if isinstance(value, frozenset):
        return {_kinds(inner) for inner in value}
    return Decimal if isinstance(value, int | Decimal) and not isinstance(value, bool) else type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [True, None, "x"]}, '{"a":1,"b":[true,null,"x"]}'),
        (Decimal("1.10"), "1.1"),
        (b"\x00\xff", '{"B":"AP8="}'),
        (frozenset({"b", "a"}), '{"SS":["a","b"]}'),
        (frozenset({Decimal("1.5"), 10}), '{"NS":[1.5,10]}'),
        ({"B": "no bytes"}, '{"M":{"B":"no bytes"}}'),
        ({"B": 1, "C": 2}, '{"B":1,"C":2}'),
    ],
)
def test_as_it_is_written(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_an_object_of_another_source_is_a_map() -> None:
    assert from_plain_text('{"B": "AP8="}') == {"B": "AP8="}


@pytest.mark.parametrize("text", ['{"B": "not base64!"}', "{", '{"NS": ["x"]}', '{"SS": 1}'])
def test_what_is_not_an_item(text: str) -> None:
    with pytest.raises(BadInput, match="not JSON of an item"):
        from_text(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (Decimal("-0.00"), "0"), (7, "7"), (Decimal("7.0"), "7"), (Decimal("1E+3"), "1000"),
        (10**37, "1" + "0" * 37), (10**50, "1E+50"), (Decimal("1E-130"), "1E-130"), (-Decimal("0.001"), "-0.001"),
        (Decimal("9." + "9" * 37 + "E+125"), "9." + "9" * 37 + "E+125"),
    ],
)  # fmt: skip
def test_a_number_is_written_in_one_way(number: Any, text: str) -> None:
    assert number_text(number) == text
    assert Decimal(text) == number


@pytest.mark.parametrize("number", [10**38 + 1, Decimal("1E+126"), Decimal("1E-131"), Decimal("NaN")])
def test_numbers_that_dynamodb_does_not_hold(number: Any) -> None:
    with pytest.raises(ValueError, match="DynamoDB"):
        number_text(number)
