"""Items as JSON: converts items of DynamoDB to JSON text and back, without loss.

S, BOOL, NULL     text, true or false, null             N     a number with all its digits
L, M              an array, an object
B                 {"B": "base64"}                       SS, NS, BS     {"SS": [text…]}, {"NS": [number…]}, …
an M whose only attribute has the name of one of these tags: {"M": {…}}
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from decimal import Context, Decimal
from typing import Any

import msgspec

from tailrace.errors import BadInput

TAGS = frozenset({"B", "SS", "NS", "BS", "M"})
EXACT = Context(prec=60)
MAX_DIGITS, MAX_EXPONENT, MIN_EXPONENT = 38, 125, -130
_PLAIN_EXPONENTS = range(-40, 38)
_encode = msgspec.json.Encoder(decimal_format="number").encode


def to_text(value: Any) -> str:
    """Return an item, or a value of an item, as JSON text."""
    return _encode(_encoded(value)).decode()


def from_text(text: str | bytes) -> Any:
    """Return the item, or the value of an item, of a text that `to_text` made; raise `BadInput` for bad text."""
    return _read(text, _decoded)


def from_plain_text(text: str | bytes) -> Any:
    """Return the value of JSON text from any source, in which every object is a map; raise `BadInput` for bad text."""
    return _read(text, lambda value: value)


def _read(text: str | bytes, convert: Any) -> Any:
    try:
        return convert(_decoder.decode(text))
    except (msgspec.DecodeError, ArithmeticError, RecursionError, ValueError, TypeError) as error:
        raise BadInput(f"this is not JSON of an item: {error}: {text[:80]!r}") from None


def _encoded(value: Any) -> Any:
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int | Decimal):
        return Decimal(number_text(value))
    if isinstance(value, bytes):
        return {"B": b64encode(value).decode()}
    if isinstance(value, list):
        return [_encoded(inner) for inner in value]
    if isinstance(value, dict):
        made = {name: _encoded(inner) for name, inner in value.items()}
        return {"M": made} if len(made) == 1 and made.keys() <= TAGS else made
    return _encoded_set(value)


def _encoded_set(value: frozenset[Any]) -> Any:
    members = sorted(value)
    if isinstance(members[0], str):
        return {"SS": members}
    if isinstance(members[0], bytes):
        return {"BS": [b64encode(member).decode() for member in members]}
    return {"NS": [_encoded(member) for member in members]}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not value.keys() <= TAGS:
        return {name: _decoded(inner) for name, inner in value.items()}
    ((tag, inner),) = value.items()
    if tag == "B":
        return b64decode(inner, validate=True)
    if tag == "M":
        return {name: _decoded(one) for name, one in inner.items()}
    if tag == "NS":
        return frozenset(Decimal(one) for one in inner)
    return frozenset(b64decode(one, validate=True) if tag == "BS" else one for one in inner)


def _number(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number.adjusted() < MAX_DIGITS and number == number.to_integral_value() else number


_decoder = msgspec.json.Decoder(float_hook=_number)


def number_text(number: int | Decimal) -> str:
    """Write a number in one form, whatever its scale: 7, 1.1, 1E+50; raise `ValueError` if DynamoDB cannot hold it."""
    exact = Decimal(number)
    if not exact.is_finite():
        raise ValueError(f"DynamoDB has no number {exact}")
    if not exact:
        return "0"
    exact = exact.normalize(EXACT) if len(exact.as_tuple().digits) <= EXACT.prec else _stripped(exact)
    if len(exact.as_tuple().digits) > MAX_DIGITS:
        raise ValueError(f"{number} has more than the {MAX_DIGITS} digits of a number in DynamoDB")
    if not MIN_EXPONENT <= exact.adjusted() <= MAX_EXPONENT:
        raise ValueError(f"{number} is out of the range of numbers in DynamoDB, 1E-130 to 9.9…E+125")
    return f"{exact:f}" if exact.adjusted() in _PLAIN_EXPONENTS else str(exact)


def _stripped(number: Decimal) -> Decimal:
    """Return a number without trailing zeros."""
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return Decimal((sign, tuple(map(int, kept)), int(exponent) + len(text) - len(kept)))
