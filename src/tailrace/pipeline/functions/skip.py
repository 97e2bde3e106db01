"""Skip: the function that keeps the messages whose field compares as asked, and leaves the others out.

    skip("count", "<=", 10)    skip("name", "=~", "^good")    skip("created", ">=", "2024-01-01")

`matches` defines a comparison for single values; `_compared` does the same for a whole column where Arrow can.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptors.rows.rows import columns_of, ops_of
from tailrace.adaptors.rows.unset import unset_at, unset_of
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Op
from tailrace.pipeline.functions.columns import field_names

ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operators.gt,
    ">=": operators.ge,
    "<": operators.lt,
    "<=": operators.le,
}
ARROW = {"==": pc.equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}
OPERATORS = ("==", "=~", *ORDERS)


def matches(value: Any, operator: str, match: Any) -> bool:
    """Whether a value compares as asked.  None matches only `== None`.  `BadInput` if the two cannot be compared."""
    if value is None or (operator == "==" and match is None):
        return operator == "==" and match is None and value is None
    if operator == "=~":
        if not isinstance(value, str):
            raise BadInput(f"=~ compares text, not a {type(value).__name__}")
        return bool(pc.match_substring_regex(pa.array([value]), match)[0].as_py())
    if operator == "==":
        return _equal(value, match)
    return ORDERS[operator](*_ordered(value, match, operator))


def _equal(value: Any, match: Any) -> bool:
    if isinstance(value, bool) or isinstance(match, bool):
        return value is match
    if isinstance(value, (date, time)) and isinstance(match, str):
        return bool(value == _moment(value, match))
    return bool(value == match)


def _ordered(value: Any, match: Any, operator: str) -> tuple[Any, Any]:
    """Both values as numbers, which may be written as text, or as dates or times."""
    if isinstance(value, (date, time)):
        return value, _moment(value, match)
    return _number(value, operator), _number(match, operator)


def _number(value: Any, operator: str) -> Decimal:
    try:
        if not isinstance(value, bool) and isinstance(value, (int, float, Decimal, str)):
            number = Decimal(value)
            if not number.is_nan():
                return number
    except InvalidOperation:
        pass
    shown = repr(value) if isinstance(value, (bool, str)) and len(str(value)) < 60 else f"a {type(value).__name__}"
    raise BadInput(f"{operator} compares numbers and times, not {shown}")


def _moment(value: Any, match: Any) -> Any:
    try:
        found = type(value).fromisoformat(match) if isinstance(match, str) else match
        if (
            isinstance(found, datetime)
            and isinstance(value, datetime)
            and (found.tzinfo is None) != (value.tzinfo is None)
        ):
            found = found.replace(tzinfo=value.tzinfo)
        if isinstance(found, type(value)):
            return found
    except ValueError:
        pass
    raise BadInput(f"a {type(value).__name__} cannot be compared with {match!r}; write it as 2024-12-31T23:59:59")


@dataclass(frozen=True, slots=True)
class Skip:
    """Keeps the messages that match.  Also keeps a delete whose field the source did not send: it can do no harm."""

    takes_rows: ClassVar[bool] = True
    field: str
    operator: str
    match: Any

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows that match.  An error's `row` is the number of the row that cannot be compared."""
        names = field_names(batch)
        if self.field not in names:
            column: pa.Array[Any] = pa.nulls(batch.num_rows)
            absent: pa.Array[Any] = pa.repeat(pa.scalar(True), batch.num_rows)
        else:
            place = names.index(self.field)
            column, absent = columns_of(batch).column(place), unset_at(unset_of(batch), place)
        deleted = pc.equal(ops_of(batch), pa.scalar(int(Op.DELETE), pa.uint8()))
        return [batch.filter(pc.or_(self._mask(column), pc.and_(absent, deleted)))]

    def _mask(self, column: pa.Array[Any]) -> pa.Array[Any]:
        try:
            mask = self._compared(column)
        except pa.ArrowInvalid:  # for example an integer that no float equals
            mask = None
        return pc.fill_null(mask, False) if mask is not None else self._one_by_one(column)

    def _compared(self, column: pa.Array[Any]) -> pa.Array[Any] | None:
        """The comparison of the whole column; None where Arrow may compare in another way than `matches`."""
        kind, match = column.type, self.match
        if match is None:
            return column.is_null()
        if pa.types.is_null(kind):
            return pa.repeat(pa.scalar(False), len(column))
        if self.operator == "=~":
            return pc.match_substring_regex(column, match) if _is_text(kind) else None
        if self.operator == "==" and _is_text(kind) and isinstance(match, str):
            return pc.equal(column, match)
        number = _small(match) if self.operator == "==" or not isinstance(match, str) else _small(_parsed(match))
        if number is None or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        if (isinstance(number, float) and pa.types.is_integer(kind)) or _has_nan(column):
            return None
        return ARROW[self.operator](column, pa.scalar(number))

    def _one_by_one(self, column: pa.Array[Any]) -> pa.Array[Any]:
        out = []
        for n, value in enumerate(_values(column)):
            try:
                out.append(matches(value, self.operator, self.match))
            except BadInput as error:
                told = BadInput(f"skip on {self.field!r}: {error}")
                told.row = n  # type: ignore[attr-defined]
                raise told from None
        return pa.array(out, pa.bool_())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _small(match: Any) -> int | float | None:
    """The value if it is a number that Arrow can hold, else None."""
    is_number = isinstance(match, (int, float)) and not isinstance(match, bool)
    return match if is_number and abs(match) < 2**63 else None


def _parsed(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        return None


def _has_nan(column: pa.Array[Any]) -> bool:
    return bool(pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py())


def _values(column: pa.Array[Any]) -> list[Any]:
    """The column's plain values; decodes a field of mixed types, which is stored as JSON text."""
    if isinstance(column.type, pa.JsonType):
        texts = column.storage.to_pylist()
        return [None if text is None else msgspec.json.decode(text) for text in texts]
    return list(column.to_pylist())


def skip(field: str, operator: str, match: Any) -> Skip:
    """A function that keeps the messages whose field compares as asked, by one of == =~ > >= < <=."""
    if operator not in OPERATORS:
        raise BadSetting(f"skip has no operator {operator!r}; there are: {' '.join(OPERATORS)}")
    if operator == "=~":
        _check_pattern(match)
    elif operator != "==" and not isinstance(match, (date, time)):
        _check_order(operator, match)
    return Skip(field, operator, match)


def _check_pattern(match: Any) -> None:
    try:
        re.compile(match)
        pc.match_substring_regex(pa.array([""]), match)
    except (re.error, TypeError, pa.ArrowInvalid) as error:
        raise BadSetting(f"skip: {match!r} is not a regular expression of RE2: {error}") from None


def _check_order(operator: str, match: Any) -> None:
    """Raise `BadSetting` if `match` is no number, date or time, also as text."""
    try:
        _number(match, operator)
    except BadInput:
        for kind in (datetime, date, time):
            try:
                kind.fromisoformat(match)
                return
            except (TypeError, ValueError):
                continue
        raise BadSetting(f"skip: {operator} compares with a number or a time, not {match!r}") from None
