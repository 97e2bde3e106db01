"""Widening: the changes of a column's type that keep every value, and the types that silently round values.

tinyint → smallint → mediumint → int → bigint, also unsigned     float → double
varchar(n) → varchar(m) → a text that has its bytes → longtext   the same of bytes
decimal(p,s) → one with no fewer digits on either side           time, datetime, timestamp(n) → more digits
enum and set → one that begins with the same values
"""

from __future__ import annotations

import re

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_LADDERS = (
    ("tinytext", "text", "mediumtext", "longtext"),
    ("tinyblob", "blob", "mediumblob", "longblob"),
    ("float", "double"),
)
_SIZED = re.compile(r"(varchar|varbinary|time|datetime|timestamp)(?:\((\d+)\))?$")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)( unsigned)?$")
_LISTED = re.compile(r"(enum|set)\((.*)\)$", re.DOTALL)
_LARGEST = (2**8 - 1, 2**16 - 1, 2**24 - 1, 2**32 - 1)
"""The most bytes of each kind of text and of bytes."""
_CHARACTER_BYTES = {"varchar": 4, "varbinary": 1}
_BITS = (8, 16, 24, 32, 64)
"""The bits of each integer type."""
_KEEPS = {"float": (24, 6), "double": (53, 15)}
"""The bits of integers, and the digits of decimals, that the floats keep."""


def widens(now: str, wanted: str) -> bool:
    """Return whether type `wanted` holds every value of a column of type `now` unchanged; both as SQL writes them."""
    if now == wanted or not wanted:
        return False
    if (old := _integer(now)) and (new := _integer(wanted)):
        wider = new[0] > old[0]
        return wider and (old[1] == new[1] or old[1])  # the next larger signed type holds every unsigned value
    for ladder in _LADDERS:
        if now in ladder and wanted in ladder:
            return ladder.index(now) < ladder.index(wanted)
    if (first := _SIZED.match(now)) and (second := _SIZED.match(wanted)):
        return first[1] == second[1] and int(first[2] or 0) < int(second[2] or 0)
    if first and first[1] in _CHARACTER_BYTES:
        ladder = _LADDERS[0 if first[1] == "varchar" else 1]
        return wanted in ladder and int(first[2]) * _CHARACTER_BYTES[first[1]] <= _LARGEST[ladder.index(wanted)]
    if (first := _DECIMAL.match(now)) and (second := _DECIMAL.match(wanted)):
        whole = [int(one[1]) - int(one[2]) for one in (first, second)]
        return first[3] == second[3] and whole[0] <= whole[1] and int(first[2]) <= int(second[2])
    if (first := _LISTED.match(now)) and (second := _LISTED.match(wanted)):
        return first[1] == second[1] and second[2].startswith(f"{first[2]},")
    return False


def rounds(now: str, source: str) -> bool:
    """Return whether a column of type `now` takes values of type `source`, but silently drops a part of them."""
    if source in _KEEPS:
        return (now, source) == ("float", "double") or bool(_integer(now) or _DECIMAL.match(now))
    if now in _KEEPS:
        (bits, digits), whole, decimal = _KEEPS[now], _integer(source), _DECIMAL.match(source)
        return bool((whole and _BITS[whole[0]] > bits) or (decimal and int(decimal[1]) > digits))
    if _integer(now) and _digits(source):
        return True
    if now == "date" and source.startswith(("datetime", "timestamp")):
        return True
    old, new = _SIZED.match(now), _SIZED.match(source)
    if old and new and new[1] in ("time", "datetime", "timestamp") and old[1] in ("time", "datetime", "timestamp"):
        return int(old[2] or 0) < int(new[2] or 0) or (old[1] == "time" and new[1] != "time")
    first = _DECIMAL.match(now)
    return bool(first) and _digits(source) > int(first[2] if first else 0)


def _digits(type: str) -> int:
    found = _DECIMAL.match(type)
    return int(found[2]) if found else 0


def _integer(type: str) -> tuple[int, bool] | None:
    name, _, sign = type.partition(" ")
    return (_INTEGERS.index(name), sign == "unsigned") if name in _INTEGERS and sign in ("", "unsigned") else None
