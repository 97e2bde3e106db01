"""What people write on the command line: positions, settings."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tailrace.errors import BadInput

if TYPE_CHECKING:
    from tailrace.log.topic import Position

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def _quantity(text: str, units: dict[str, Any]) -> float | None:
    """A number with a unit; None if it is something else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    return float(found[1]) * units[found[2]] if found and found[2] in units else None


def seconds(text: str) -> float:
    """How long: `90s`, `15m`, `12h`, `1d`, or a number of seconds."""
    found = _quantity(text, SECONDS) if not text.replace(".", "", 1).isdecimal() else float(text)
    if not found:
        raise BadInput(f"{text!r} is no duration above zero; write 90s, 15m, 12h, 1d")
    return found


def size(text: str) -> int:
    """How many bytes: `64KiB`, `16MiB`, `1GB`, or a number."""
    found = _quantity(text, BYTES) if not text.isdecimal() else float(text)
    if not found:
        raise BadInput(f"{text!r} is no size above zero; write 64KiB, 16MiB, 1GB")
    return round(found)


def position(text: str, now: datetime | None = None) -> Position:
    """earliest, latest, an offset, a time, or how long ago: `15m`, `2h`, `7d`."""
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]
    if text.isdecimal():
        return int(text)
    if (ago := _quantity(text, SECONDS)) is not None:
        return (now or datetime.now(UTC)) - timedelta(seconds=ago)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(
            f"{text!r} is no position; there are: earliest, latest, an offset, a time (2026-01-31T12:00:00Z, local "
            "without a zone), how long ago (15m, 2h, 7d)"
        ) from None
    return when if when.tzinfo else when.astimezone()


def settings(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs.  A duration may be written `7d`, a size `1GiB`, no limit `null`."""
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"{text!r} is no setting; write NAME=VALUE, as in retention_ms=7d")
        pairs[name.strip().replace("-", "_")] = _setting(name.strip(), value.strip())
    return pairs


def _setting(name: str, value: str) -> Any:
    if name.endswith("ms") and (seconds := _quantity(value, SECONDS)) is not None:
        return round(seconds * 1000)
    if name.endswith("bytes") and (size := _quantity(value, BYTES)) is not None:
        return round(size)
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def share(text: str) -> float:
    """A part of all, as a percentage: `5%`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    part = float(found[1]) / 100 if found else 0.0
    if not 0 < part <= 1:
        raise BadInput(f"{text!r} is no share; write a percentage above 0, as in 5%")
    return part
