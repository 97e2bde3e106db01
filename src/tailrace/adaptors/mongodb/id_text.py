"""Ids as text: converts each `_id` to a text of its own, which is the same in every batch.

ObjectId                       its 24 hexadecimal digits
numbers                        3, 2.5, 1e+300: numbers that MongoDB treats as equal (3, 3.0, Decimal128 3.0) are one id
text                           unchanged; as a JSON string if it would otherwise be read as another type
true, false, null              as in JSON
anything else                  Extended JSON, with the numbers in it as above
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec
from bson import DBRef, Decimal128, ObjectId
from bson.decimal128 import create_decimal128_context

from tailrace.adaptors.mongodb.extended_json import from_text, to_text

_OBJECT_ID = re.compile(r"[0-9a-f]{24}")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_INT64 = range(-(2**63), 2**63)
_quoted = msgspec.json.encode


def id_text(value: Any) -> str:
    """Return the text of an `_id`."""
    if isinstance(value, ObjectId):
        return str(value)
    if type(value) is str:  # `isinstance` would include Code, a subclass of str
        return _quoted(value).decode() if _is_ambiguous(value) else value
    return to_text(_normal(value))


def id_of(text: str) -> Any:
    """Return the `_id` of a text: the value that `id_text` was given, or a number equal to it."""
    if _OBJECT_ID.fullmatch(text):
        return ObjectId(text)
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text) or text[:1] in ('"', "{"):
        return from_text(text)
    return text


def _is_ambiguous(text: str) -> bool:
    return bool(text[:1] in ('"', "{") or text in _WORDS or _NUMBER.fullmatch(text) or _OBJECT_ID.fullmatch(text))


def _normal(value: Any) -> Any:
    """Return the value with each number in a normal form that all equal numbers share."""
    if isinstance(value, dict):
        return {name: _normal(inner) for name, inner in value.items()}
    if isinstance(value, DBRef):
        return _normal(dict(value.as_doc()))
    if isinstance(value, list):
        return [_normal(inner) for inner in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _whole(value) if value.is_integer() else value
    return _decimal(value) if isinstance(value, Decimal128) else value


def _whole(value: float) -> Any:
    return int(value) if int(value) in _INT64 else value


def _decimal(value: Decimal128) -> Any:
    exact: Decimal = value.to_decimal()
    if not exact.is_finite():
        return float(exact) if not exact.is_nan() else float("nan")
    if abs(exact.adjusted()) < 20 and exact == exact.to_integral_value() and int(exact) in _INT64:
        return int(exact)
    near = float(exact)
    return near if Decimal(near) == exact else Decimal128(create_decimal128_context().normalize(exact))
