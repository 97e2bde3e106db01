"""Values on the command line: durations, sizes, positions, settings, percentages."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tailrace.errors import BadInput, BadToken

if TYPE_CHECKING:
    from tailrace.log.topic import Position
    from tailrace.streams.stream import Start

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def _quantity(text: str, units: dict[str, Any]) -> float | None:
    """Return a number times its unit; None if the text is something else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    return float(found[1]) * units[found[2]] if found and found[2] in units else None


def whole(text: str | int) -> int:
    """Return the whole number that a command line gives as an option's value; raise `typer.BadParameter` for anything
    else."""
    if not str(text).strip().lstrip("-").isdecimal():
        raise typer.BadParameter(f"{text!r} is no whole number")
    return int(text)


def seconds(text: str) -> float:
    """Return the seconds of a duration: `90s`, `15m`, `12h`, `1d`, or a number of seconds."""
    found = _quantity(text, SECONDS) if not text.replace(".", "", 1).isdecimal() else float(text)
    if not found:
        raise BadInput(f"{text!r} is no duration above zero; write 90s, 15m, 12h, 1d")
    return found


def size(text: str) -> int:
    """Return the number of bytes that a size on the command line names: `64KiB`, `16MiB`, `1GB`, or a number."""
    found = _quantity(text, BYTES) if not text.isdecimal() else float(text)
    if not found:
        raise BadInput(f"{text!r} is no size above zero; write 64KiB, 16MiB, 1GB")
    return round(found)


def position(text: str, now: datetime | None = None) -> Position:
    """Return the position that a text names: earliest, latest, an offset, a time, or how long ago (`15m`, `2h`)."""
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


def place_in_stream(text: str) -> Start:
    """Return the place in a change stream that a text on the command line names: trim_horizon, latest, a time, how long
    ago, or a token (its JSON, or the file that has it)."""
    if text in ("trim_horizon", "latest"):
        return text
    if text.lstrip().startswith("{") or Path(text).is_file():
        return _token(text if text.lstrip().startswith("{") else Path(text).read_text(), text)
    try:
        found = position(text)
    except BadInput:
        found = None
    if found is None and Path(text).suffix:
        raise BadInput(f"there is no file {text!r}; `tailrace stream token TABLE --save FILE` writes a token to one")
    if not isinstance(found, datetime):
        raise BadInput(
            f"{text!r} is no place in a change stream; there are: trim_horizon, latest, a time (2026-01-31T12:00:00Z, "
            "local without a zone), how long ago (15m, 2h), a file with a token"
        )
    return found


def _token(text: str, given: str) -> Start:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadToken(
            f"{given:.60} holds no token: it is no JSON ({error}); `tailrace stream token TABLE --json` prints one"
        ) from None
    if not isinstance(found, dict):
        raise BadToken(f"{given:.60} holds no token; `tailrace stream token TABLE --json` prints one")
    return found


def settings(given: list[str] | None) -> dict[str, Any]:
    """Return settings given as NAME=VALUE.  A duration may be written `7d`, a size `1GiB`, no limit `null`."""
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
    """Return a percentage on the command line, such as `5%`, as a fraction, above 0 and up to 1."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    part = float(found[1]) / 100 if found else 0.0
    if not 0 < part <= 1:
        raise BadInput(f"{text!r} is no share; write a percentage above 0, as in 5%")
    return part
