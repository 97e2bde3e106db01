"""Widening: the changes of a column's type that keep every value, and the types that silently round values.

tinyint → smallint → mediumint → int → bigint, also unsigned     float → double
varchar(n) → varchar(m) → text → mediumtext → longtext           the same of bytes
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
_LARGEST = {"varchar": "tinytext", "varbinary": "tinyblob"}


def widens(now: str, wanted: str) -> bool:
    """Return whether type `wanted` holds every value of a column of type `now` unchanged; both as SQL writes them."""
    if now == wanted or not wanted:
        return False
    if (old := _integer(now)) and (new := _integer(wanted)):
        wider = new[0] > old[0]
        return wider and (old[1] == new[1] or old[1])  # the next larger signed type holds every unsigned value
    for ladder in _LADDERS:
        if wanted in ladder:
            begin = _LARGEST.get(now.split("(")[0], now)
            if begin in ladder:
                return ladder.index(begin) < ladder.index(wanted) or begin != now
    if (first := _SIZED.match(now)) and (second := _SIZED.match(wanted)):
        return first[1] == second[1] and int(first[2] or 0) < int(second[2] or 0)
    if (first := _DECIMAL.match(now)) and (second := _DECIMAL.match(wanted)):
        whole = [int(one[1]) - int(one[2]) for one in (first, second)]
        return first[3] == second[3] and whole[0] <= whole[1] and int(first[2]) <= int(second[2])
    if (first := _LISTED.match(now)) and (second := _LISTED.match(wanted)):
        return first[1] == second[1] and second[2].startswith(f"{first[2]},")
    return False


def rounds(now: str, source: str) -> bool:
    """Return whether a column of type `now` takes values of type `source`, but silently drops a part of them."""
    if (now, source) == ("float", "double"):
        return True
    if _integer(now) and (source in ("float", "double") or _digits(source)):
        return True
    if now == "date" and source.startswith(("datetime", "timestamp")):
        return True
    old, new = _SIZED.match(now), _SIZED.match(source)
    if old and new and new[1] in ("time", "datetime", "timestamp") and old[1] in ("time", "datetime", "timestamp"):
        return int(old[2] or 0) < int(new[2] or 0)
    first = _DECIMAL.match(now)
    return bool(first) and _digits(source) > int(first[2] if first else 0)


def _digits(type: str) -> int:
    found = _DECIMAL.match(type)
    return int(found[2]) if found else 0


def _integer(type: str) -> tuple[int, bool] | None:
    name, _, sign = type.partition(" ")
    return (_INTEGERS.index(name), sign == "unsigned") if name in _INTEGERS and sign in ("", "unsigned") else None
