"""A value of every kind that an item holds, with those at the edges."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

VALUES: dict[str, Any] = {
    "text": 'straße 💡 \x00 " \\ \u2028',
    "empty text": "",
    "zero": 0,
    "number": -7,
    "of 38 digits": Decimal("1234567890123456789012345678901234567.8"),
    "whole of 38 digits": 99999999999999999999999999999999999999,
    "beyond 64 bits": 2**64 + 1,
    "no double": Decimal("0.12345678901234567890123456789"),
    "largest": Decimal("9.9999999999999999999999999999999999999E+125"),
    "smallest": Decimal("1E-130"),
    "bytes": b"\x00\xff",
    "empty bytes": b"",
    "true": True,
    "false": False,
    "null": None,
    "texts": frozenset({"a", "", "ä"}),
    "numbers": frozenset({Decimal("1"), Decimal("1.5"), Decimal("-3")}),
    "byte strings": frozenset({b"\x00", b"\xff\xfe"}),
    "list": [1, "a", None, [b"x"], {"y": [True]}],
    "empty list": [],
    "map": {"a": {"b": {"c": Decimal("1.5")}}, "empty": 1},
    "empty map": {},
    "like bytes": {"B": "AP8="},
    "like a map": {"M": {"a": 1}},
    "like texts": {"SS": ["a"]},
    "inner like bytes": [{"B": "AP8="}, {"NS": "x"}],
}
