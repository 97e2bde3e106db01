"""Extended JSON: converts BSON values to JSON text and back, without loss.

The form is MongoDB's Extended JSON v2: relaxed where that loses nothing, canonical elsewhere:

    int32, int64 beyond 32 bits, double   a number; a double has a point or an exponent
    int64 that 32 bits would hold         {"$numberLong": "5"}
    NaN, Infinity, -Infinity              {"$numberDouble": "NaN"}
    date of the years 1970 to 9999        {"$date": "2024-02-29T12:00:00.001Z"}
    any other date                        {"$date": {"$numberLong": "-1"}}
    ObjectId, Decimal128, binary, …       {"$oid": …}, {"$numberDecimal": …}, {"$binary": {"base64": …, "subType": …}}
    a document whose field names make it look like one of these: {"$document": {…}}

Every reader of Extended JSON understands all of these except the last, for which the standard has no form.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from bson import SON, Binary, Code, DatetimeMS, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from tailrace.errors import BadInput

DECODED: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
"""The options for decoding documents: dates as milliseconds, which hold every date of BSON, and UUIDs as `Binary`."""
_INT32 = range(-(2**31), 2**31)
_LAST_WRITTEN_DATE = 253402300800000
"""The first millisecond of the year 10000: dates from then on, and dates before 1970, are written as numbers."""
_REGEX_FLAGS = "ilmsux"
_json = msgspec.json.encode


def to_text(value: Any) -> str:
    """Return a BSON value, decoded with `DECODED`, as Extended JSON."""
    return _json(_encoded(value)).decode()


def from_text(text: str | bytes) -> Any:
    """Return the BSON value of Extended JSON; raise `BadInput` for bad text, and for integers of more than 64 bits."""
    try:
        return _decoded(msgspec.json.decode(text))
    except (
        msgspec.DecodeError,
        BSONError,
        ArithmeticError,
        RecursionError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:
        raise BadInput(f"this is not Extended JSON: {error}: {text[:80]!r}") from None


def _encoded(value: Any) -> Any:
    encode = _ENCODERS.get(type(value))
    return value if encode is None else encode(value)


def _document(value: Mapping[str, Any]) -> Any:
    made = {name: _encoded(inner) for name, inner in value.items()}
    return {"$document": made} if _looks_special(made) else made


def _looks_special(value: Mapping[str, Any]) -> bool:
    """Return whether a document's field names are those of one of the forms in the module's docstring."""
    return len(value) <= 2 and (frozenset(value) in _DECODERS or "$document" in value)


def _double(value: float) -> Any:
    if math.isfinite(value):
        return value
    return {"$numberDouble": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}


def _date(value: DatetimeMS) -> Any:
    number = int(value)
    if not 0 <= number < _LAST_WRITTEN_DATE:
        return {"$date": {"$numberLong": str(number)}}
    text = value.as_datetime().strftime("%Y-%m-%dT%H:%M:%S")
    return {"$date": f"{text}.{number % 1000:03}Z" if number % 1000 else f"{text}Z"}


def _binary(value: bytes) -> Any:
    kind = value.subtype if isinstance(value, Binary) else 0
    return {"$binary": {"base64": b64encode(value).decode(), "subType": f"{kind:02x}"}}


def _regex(value: Regex[Any]) -> Any:
    pattern = value.pattern if isinstance(value.pattern, str) else value.pattern.decode()
    flags = "".join(flag for flag, bit in zip(_REGEX_FLAGS, _REGEX_BITS, strict=True) if value.flags & bit)
    return {"$regularExpression": {"pattern": pattern, "options": flags}}


_REGEX_BITS = (2, 4, 8, 16, 32, 64)
"""The flags of `re` in the order of `_REGEX_FLAGS`: IGNORECASE, LOCALE, MULTILINE, DOTALL, UNICODE, VERBOSE."""


def _code(value: Code) -> Any:
    scope = {} if value.scope is None else {"$scope": _document(value.scope)}
    return {"$code": str(value), **scope}


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    dict: _document,
    SON: _document,
    list: lambda value: [_encoded(inner) for inner in value],
    float: _double,
    Int64: lambda value: {"$numberLong": str(int(value))} if int(value) in _INT32 else int(value),
    DatetimeMS: _date,
    ObjectId: lambda value: {"$oid": str(value)},
    Decimal128: lambda value: {"$numberDecimal": str(value)},
    bytes: _binary,
    Binary: _binary,
    Regex: _regex,
    Timestamp: lambda value: {"$timestamp": {"t": value.time, "i": value.inc}},
    Code: _code,
    DBRef: lambda value: _document(value.as_doc()),
    MinKey: lambda value: {"$minKey": 1},
    MaxKey: lambda value: {"$maxKey": 1},
}


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) <= 2:
            if "$document" in value and len(value) == 1:
                return _plain(value["$document"])
            decode = _DECODERS.get(frozenset(value))
            if decode is not None:
                return decode(value)
        return _plain(value)
    if isinstance(value, list):
        return [_decoded(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole_number(value)
    return value


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _decoded(inner) for name, inner in value.items()}


def _whole_number(value: int) -> Any:
    if value in _INT32:
        return value
    if -(2**63) <= value < 2**63:
        return Int64(value)
    raise BadInput(f'{value} has more than 64 bits; write it as {{"$numberDecimal": …}}')


def _read_date(value: Any) -> DatetimeMS:
    if isinstance(value, dict):
        return DatetimeMS(int(value["$numberLong"]))
    moment = msgspec.convert(value, type=datetime)
    return DatetimeMS(moment)


def _read_binary(value: dict[str, str]) -> Any:
    data, kind = b64decode(value["base64"], validate=True), int(value["subType"], 16)
    return data if kind == 0 else Binary(data, kind)


def _read_regex(value: dict[str, str]) -> Regex[str]:
    flags = sum(bit for flag, bit in zip(_REGEX_FLAGS, _REGEX_BITS, strict=True) if flag in value["options"])
    return Regex(value["pattern"], flags)


_DECODERS: dict[frozenset[str], Callable[[dict[str, Any]], Any]] = {
    frozenset({"$numberInt"}): lambda v: int(v["$numberInt"]),
    frozenset({"$numberLong"}): lambda v: Int64(v["$numberLong"]),
    frozenset({"$numberDouble"}): lambda v: float(v["$numberDouble"]),
    frozenset({"$numberDecimal"}): lambda v: Decimal128(v["$numberDecimal"]),
    frozenset({"$date"}): lambda v: _read_date(v["$date"]),
    frozenset({"$oid"}): lambda v: ObjectId(v["$oid"]),
    frozenset({"$binary"}): lambda v: _read_binary(v["$binary"]),
    frozenset({"$regularExpression"}): lambda v: _read_regex(v["$regularExpression"]),
    frozenset({"$timestamp"}): lambda v: Timestamp(v["$timestamp"]["t"], v["$timestamp"]["i"]),
    frozenset({"$code"}): lambda v: Code(v["$code"]),
    frozenset({"$code", "$scope"}): lambda v: Code(v["$code"], _decoded(v["$scope"])),
    frozenset({"$minKey"}): lambda v: MinKey(),
    frozenset({"$maxKey"}): lambda v: MaxKey(),
}
