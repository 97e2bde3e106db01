"""Keys: the attributes that identify an item, and their order.

A home's own table has `p` (text) and `i` (a whole number).  A model's table has a hash key and perhaps a range key, of
any names, each text, number or bytes.  A `Key` holds the two values; its schema has their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Literal, NamedTuple, TypeAlias

from tailrace.errors import BadInput
from tailrace.storage.tables import LAST, Item, Key, Value

KeyKind: TypeAlias = Literal["S", "N", "B"]
"""Text, number or bytes."""

MAX_HASH_BYTES, MAX_RANGE_BYTES = 2048, 1024
_KINDS: dict[KeyKind, tuple[type, ...]] = {"S": (str,), "N": (int, Decimal), "B": (bytes,)}
_CALLED = {"S": "text", "N": "a number", "B": "bytes"}
_EXPONENT_BIAS = 1000
_EXACT = Context(prec=60)


class KeySchema(NamedTuple):
    """The names and types of a table's keys.  A table without a range key has one item for each hash."""

    hash: str = "p"
    hash_kind: KeyKind = "S"
    range: str | None = "i"
    range_kind: KeyKind = "N"

    def attributes(self, key: Key) -> dict[str, Value]:
        """A key as attributes of its item."""
        return {self.hash: key.p} if self.range is None else {self.hash: key.p, self.range: key.i}

    def key_of(self, item: Mapping[str, Any]) -> Key:
        """The key of an item."""
        return Key(item[self.hash], 0 if self.range is None else item[self.range])

    def is_key(self, attribute: str) -> bool:
        """Whether an attribute is part of the key."""
        return attribute in (self.hash, self.range)

    def check(self, key: Key) -> None:
        """Refuse a key that some backend could not hold."""
        if self == HOME:
            _check_home(key)
            return
        _check("hash", self.hash, self.hash_kind, key.p, MAX_HASH_BYTES)
        if self.range is not None:
            _check("range", self.range, self.range_kind, key.i, MAX_RANGE_BYTES)

    def columns(self, key: Key) -> tuple[Any, Any]:
        """A key as two values that compare in SQLite as keys compare in DynamoDB."""
        if self == HOME:
            return key.p, key.i
        return sortable(key.p), b"" if self.range is None else sortable(key.i)

    def from_columns(self, p: Any, i: Any) -> Key:
        """The key that `columns` turned into these values."""
        if self == HOME:
            return Key(p, i)
        return Key(_sorted(self.hash_kind, p), 0 if self.range is None else _sorted(self.range_kind, i))


HOME = KeySchema()


def _check_home(key: Key) -> None:
    if not key.p or (len(key.p) > 512 and len(key.p.encode()) > MAX_HASH_BYTES):
        raise BadInput(f"a hash key has 1 to {MAX_HASH_BYTES} bytes, not {len(key.p.encode())}")
    if not 0 <= key.i <= LAST:
        raise BadInput(f"a range key is a whole number from 0 to 2^63-1, not {key.i}")


def _check(what: str, name: str, kind: KeyKind, value: Any, most: int) -> None:
    if type(value) not in _KINDS[kind]:
        raise BadInput(f"the {what} key {name!r} is {_CALLED[kind]}, not {value!r:.60}")
    if kind != "N":
        size = len(sortable(value))
        if not 1 <= size <= most:
            raise BadInput(f"the {what} key {name!r} has 1 to {most:,} bytes, not {size:,}")
    elif not Decimal(value).is_finite() or len(Decimal(value).normalize(_EXACT).as_tuple().digits) > 38:
        raise BadInput(f"the {what} key {name!r} is a finite number of at most 38 digits, not {value}")


def sortable(value: str | int | Decimal | bytes) -> bytes:
    """Bytes of a key's value that compare as the values do: texts by their UTF-8, numbers by their value."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _sortable_number(Decimal(value))


def _sortable_number(number: Decimal) -> bytes:
    """A number as its sign, exponent and digits; all complemented for a negative number."""
    if not number:
        return b"\x80"
    number = number.normalize(_EXACT)
    digits = bytes(digit + 1 for digit in number.as_tuple().digits)
    body = (number.adjusted() + _EXPONENT_BIAS).to_bytes(2, "big") + digits
    if number > 0:
        return b"\x81" + body
    return b"\x7f" + bytes(255 - byte for byte in body) + b"\xff"


def _sorted(kind: KeyKind, column: bytes) -> Any:
    """The value that `sortable` turned into these bytes."""
    if kind == "B":
        return column
    return column.decode() if kind == "S" else _number(column)


def _number(column: bytes) -> int | Decimal:
    sign, body = column[0], column[1:]
    if sign == 0x80:
        return 0
    if sign == 0x7F:
        body = bytes(255 - byte for byte in body[:-1])
    digits = tuple(byte - 1 for byte in body[2:])
    exponent = int.from_bytes(body[:2], "big") - _EXPONENT_BIAS - len(digits) + 1
    number = Decimal((sign == 0x7F, digits, exponent))
    return int(number) if exponent >= 0 and number.adjusted() < 38 else number


class Bounds(NamedTuple):
    """Bounds for the range keys of a hash: from `low` to `high`, or with a prefix.

    A single bound may be open, which excludes its value; with two, DynamoDB includes both."""

    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    prefix: str | bytes | None = None

    def check(self, schema: KeySchema) -> None:
        """Refuse bounds that are not of the range key's kind."""
        given = [value for value in (self.low, self.high, self.prefix) if value is not None]
        if given and schema.range is None:
            raise BadInput(f"the table has no range key: a hash {schema.hash!r} has one item")
        for value in given:
            if type(value) not in _KINDS[schema.range_kind]:
                raise BadInput(f"the range key {schema.range!r} is {_CALLED[schema.range_kind]}, not {value!r:.60}")
        if self.low is not None and self.high is not None and (self.low_open or self.high_open):
            raise BadInput("between two range keys both are included; drop an unwanted one from the answer")
        if self.prefix is not None and schema.range_kind == "N":
            raise BadInput(f"the range key {schema.range!r} is a number; numbers have no prefix")

    def comparisons(self) -> list[tuple[Literal[">", ">=", "<", "<="], bytes]]:
        """The comparisons that the sortable bytes of a range key must all pass."""
        found: list[tuple[Literal[">", ">=", "<", "<="], bytes]] = []
        if self.low is not None:
            found.append((">" if self.low_open else ">=", sortable(self.low)))
        if self.high is not None:
            found.append(("<" if self.high_open else "<=", sortable(self.high)))
        if self.prefix is not None:
            found.append((">=", sortable(self.prefix)))
            if (end := _successor(sortable(self.prefix))) is not None:
                found.append(("<", end))
        return found


ALL = Bounds()


def _successor(prefix: bytes) -> bytes | None:
    """The smallest bytes above all that begin with this prefix; None if there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def stripped(item: Item, schema: KeySchema) -> dict[str, Value]:
    """An item without its key."""
    return {name: value for name, value in item.items() if not schema.is_key(name)}
