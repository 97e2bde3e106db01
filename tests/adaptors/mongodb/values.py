"""Documents with every type that BSON has, and with the names and values that systems stumble over."""

from __future__ import annotations

import uuid
from typing import Any

from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)

VALUES: dict[str, Any] = {
    "int32": 5, "int32 least": -(2**31), "int32 most": 2**31 - 1,
    "int64 small": Int64(5), "int64": Int64(2**53 + 1), "int64 least": Int64(-(2**63)), "int64 most": Int64(2**63 - 1),
    "double whole": 5.0, "double": 0.1, "double least": 5e-324, "double most": 1.7976931348623157e308,
    "minus zero": -0.0, "infinity": float("inf"), "minus infinity": float("-inf"), "nan": float("nan"),
    "decimal": Decimal128("1.10"), "decimal zeros": Decimal128("1.100"), "decimal nan": Decimal128("NaN"),
    "decimal huge": Decimal128("9.999999999999999999999999999999999E+6144"), "decimal -inf": Decimal128("-Infinity"),
    "text": "text", "empty": "", "nul": "a\0b", "four bytes": "\U0001f40d", "true": True, "null": None,
    "object id": ObjectId("5f8f8c44b54764421b7156c9"),
    "date": DatetimeMS(1709208000001), "whole second": DatetimeMS(1709208000000), "before 1970": DatetimeMS(-1),
    "beyond 9999": DatetimeMS(253402300800000), "first date": DatetimeMS(-(2**63)), "last date": DatetimeMS(2**63 - 1),
    "binary": b"\0\xff", "empty binary": b"",
    "uuid": Binary(uuid.UUID(int=7).bytes, 4), "old uuid": Binary(b"x" * 16, 3),
    "md5": Binary(b"y" * 16, 5), "own binary": Binary(b"z", 0x80),
    "regex": Regex("^a.*b/\\d", "imsx"), "timestamp": Timestamp(4294967295, 4294967295), "zero stamp": Timestamp(1, 0),
    "code": Code("function () {}"), "code with scope": Code("x", {"x": 1, "y": Int64(2)}),
    "reference": DBRef("other", ObjectId("5f8f8c44b54764421b7156c9")), "far reference": DBRef("other", 1, "elsewhere"),
    "least": MinKey(), "most": MaxKey(),
    "document": {"z": 1, "a": {"y": [1, {"x": Int64(2)}]}, "": 3}, "array": [], "mixed": [1, 1.0, Int64(1), "1", None],
    "empty document": {},
}  # fmt: skip
NAMES: dict[str, Any] = {
    "a.b": 1, "$gt": 2, "with space": 3, "": 4, "op": 5, "namespace": 6, "document": 7, "command": 8, "unset": 9,
    "key": 10, "ünï": 11, "data": {"a.b": {"$set": 1}},
}  # fmt: skip
LIKE_EXTENDED_JSON: list[Any] = [
    {"$oid": "5f8f8c44b54764421b7156c9"}, {"$numberLong": "5"}, {"$date": "yesterday"}, {"$document": {"a": 1}},
    {"$document": 1, "b": 2}, {"$binary": {"base64": "", "subType": "00"}}, {"$code": "x", "$scope": {}},
    {"$document": {"$oid": 5}}, {"$minKey": 1}, {"$ref": "x"}, [{"$numberInt": "5"}],
]  # fmt: skip
IDS: list[Any] = [
    1, Int64(2), 3.5, Decimal128("4.25"), Decimal128("0.1"), 1e300, float("nan"), float("inf"), -7, 2**40,
    "1", "2", "text", "", "true", "null", '"quoted"', "{", "5f8f8c44b54764421b7156c9", "1e300", "ünï", "-0", "NaN",
    ObjectId("5f8f8c44b54764421b7156c9"), True, False, None, DatetimeMS(0), DatetimeMS(2**60), b"\0\xff",
    Binary(uuid.UUID(int=7).bytes, 4), {"a": 1, "b": "x"}, {"b": "x", "a": 1}, {"a": {"b": Int64(5)}},
    MinKey(), MaxKey(), Timestamp(5, 6), Code("x"),
]  # fmt: skip
"""Ids of one collection, all different to MongoDB."""
EQUAL_IDS: list[list[Any]] = [
    [3, Int64(3), 3.0, Decimal128("3"), Decimal128("3.00"), Decimal128("0.3E1")],
    [0, 0.0, -0.0, Decimal128("-0"), Decimal128("0E+10")],
    [2.5, Decimal128("2.50")],
    [float("inf"), Decimal128("Infinity")], [float("nan"), Decimal128("NaN")],
    [{"a": 1}, {"a": 1.0}, {"a": Decimal128("1")}],
    [Decimal128("1E40"), Decimal128("10E39")],
]  # fmt: skip
"""Ids that MongoDB takes for one."""
