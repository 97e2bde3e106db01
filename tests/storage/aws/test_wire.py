"""Values as DynamoDB writes them, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tailrace.storage.aws.wire import from_wire, item_from_wire, item_to_wire, to_wire
from tailrace.storage.tables import Key
from tailrace.testing.tablecases import VALUES, exactly, label


@pytest.mark.parametrize("value", VALUES, ids=lambda v: label(v)[:40])
def test_there_and_back(value: Any) -> None:
    assert exactly(from_wire(to_wire(value)), value)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (True, {"BOOL": True}),
        (1, {"N": "1"}),
        (Decimal("0.50"), {"N": "0.50"}),
        (bytearray(b"a"), {"B": b"a"}),
        (memoryview(b"a"), {"B": b"a"}),
        ((1, "a"), {"L": [{"N": "1"}, {"S": "a"}]}),
        ({2, 1}, {"NS": ["1", "2"]}),
        (frozenset({b"b", b"a"}), {"BS": [b"a", b"b"]}),
        ({"a": {"b": None}}, {"M": {"a": {"M": {"b": {"NULL": True}}}}}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_how_it_is_written(value: Any, wire: dict[str, Any]) -> None:
    assert to_wire(value) == wire


@pytest.mark.parametrize(
    ("text", "number"),
    [("1E+37", 10**37), ("-5e3", -5000), ("2.5", Decimal("2.5")), ("1E+40", Decimal("1E+40")), ("3.00", 3)],
)
def test_numbers_as_others_write_them(text: str, number: int | Decimal) -> None:
    assert exactly(from_wire({"N": text}), number)


def test_an_item_has_the_key_it_is_written_under() -> None:
    wire = item_to_wire(Key("a", 3), {"p": "b", "i": 4, "n": 1})
    assert item_from_wire(wire) == {"p": "a", "i": 3, "n": 1}
