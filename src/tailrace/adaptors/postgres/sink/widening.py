"""Widening: which types can change to which others without losing anything of a value, and which silently lose a part.

    smallint → integer → bigint                     real → double precision
    varchar(n) → varchar(m) → varchar, text         numeric(p, s) → one with no fewer digits on either side of the point
    smallint, integer, bigint → numeric             time and timestamp(p) → more digits of a second

A date is not a timestamp at midnight, and char(n) is padded: neither is widened.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LADDERS = (("smallint", "integer", "bigint"), ("real", "double precision"))
_INTEGERS = {"smallint": 5, "integer": 10, "bigint": 19}
"""The decimal digits of each integer type."""
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?$")
_TEXT = re.compile(r"(?:character varying(?:\((\d+)\))?|text)$")
_MOMENT = re.compile(r"(time|timestamp)(?:\((\d)\))?( with(?:out)? time zone)$")
_FLOATS = {"real": 6, "double precision": 15}
"""The decimal digits that each type of binary fractions keeps of every number."""
_ENDLESS = 10**9
"""Digits of a numeric without a precision: more than any value has."""
_MAX_SECOND_DIGITS = 6


class _Digits(NamedTuple):
    """How many digits a number may have before its point and after it."""

    before: int
    after: int


def _digits(type: str) -> _Digits | None:
    if type in _INTEGERS:
        return _Digits(_INTEGERS[type], 0)
    if (found := _NUMERIC.match(type)) is None:
        return None
    return _Digits(_ENDLESS, _ENDLESS) if found[1] is None else _Digits(int(found[1]) - int(found[2]), int(found[2]))


def widens(now: str, wanted: str) -> bool:
    """Whether a column can change from type `now` to type `wanted`, which holds each value of `now` unchanged.  Both
    are types as SQL writes them."""
    if now == wanted:
        return False
    for ladder in _LADDERS:
        if now in ladder and wanted in ladder:
            return ladder.index(now) < ladder.index(wanted)
    if (old := _TEXT.match(now)) and (new := _TEXT.match(wanted)):
        return old[1] is not None and (new[1] is None or int(new[1]) > int(old[1]))
    if (old := _MOMENT.match(now)) and (new := _MOMENT.match(wanted)):
        return (old[1], old[3]) == (new[1], new[3]) and _fraction(old) < _fraction(new)
    return wanted not in _INTEGERS and _holds(_digits(wanted), _digits(now))


def _holds(wide: _Digits | None, narrow: _Digits | None) -> bool:
    return wide is not None and narrow is not None and wide.before >= narrow.before and wide.after >= narrow.after


def _fraction(moment: re.Match[str]) -> int:
    return _MAX_SECOND_DIGITS if moment[2] is None else int(moment[2])


def rounds(now: str, source: str) -> bool:
    """Whether a column of type `now` takes values of type `source` but silently drops a part of some.  An integer
    column refuses fractions."""
    if (now, source) == ("real", "double precision"):
        return True
    if (old := _MOMENT.match(now)) and (new := _MOMENT.match(source)):
        return _fraction(old) < _fraction(new) or (old[3], new[3]) == (" without time zone", " with time zone")
    if now == "date" and source.startswith("timestamp"):
        return True
    most = _digits(source)
    if now in _FLOATS:
        return most is not None and most.before + most.after > _FLOATS[now]
    if (kept := _digits(now)) is None or now in _INTEGERS:
        return False
    if source in _FLOATS:
        return kept.after < _ENDLESS
    return most is not None and kept.after < most.after
