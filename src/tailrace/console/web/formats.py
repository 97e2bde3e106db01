"""Numbers, sizes, times and texts for people: with units and separators, and without characters that mislead."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

UNKNOWN = "\N{EN DASH}"
"""The sign for a value that is not known."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_UNSEEN = {0xAD, 0x034F, 0x180E, 0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF, *range(0xE0000, 0xE0080)}
"""Without U+200C and U+200D, which Persian, Hindi and emoji need between their letters."""
_PICTURES = {
    **{n: chr(0x2400 + n) for n in range(32) if n not in (9, 10)},
    127: "␡",
    **{n: f"⟨U+{n:04X}⟩" for n in (*range(0x80, 0xA0), *sorted(_BIDI | _UNSEEN))},
}
"""Characters that are invisible or change the direction of writing, and what a page shows in their place."""


def number(value: float | None) -> str:
    """Return a number with separators, as 12,345; a fraction has one digit, one below 0.1 two significant digits."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 0.1 else f"{value:,.2g}"


def rate(value: float | None) -> str:
    """Return a rate per second for people; an unknown one is a dash."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}/s" if value >= 100 else f"{value:,.1f}".removesuffix(".0") + "/s"


def size(value: float | None) -> str:
    """Return a number of bytes in the unit that fits: 1.5 MiB."""
    if value is None:
        return UNKNOWN
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def span(seconds: float | None) -> str:
    """Return a duration for people: 250 ms, 3.2 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return UNKNOWN
    if seconds <= 0:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, above, below, size in (("min", 3600, "s", 60), ("h", 86400, "min", 3600)):
        if whole < above:
            rest = whole % size // (1 if size == 60 else 60)
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    rest = whole % 86400 // 3600
    return f"{whole // 86400:,} d" + (f" {rest} h" if rest else "")


def moment(when: int | str | None) -> Markup:
    """Return a time for people, given in milliseconds since 1970 or ISO 8601, as an element that the script shows in
    the browser's time zone."""
    if when is None or when == "":
        return Markup(UNKNOWN)
    try:
        at = datetime.fromtimestamp(when / 1000, UTC) if isinstance(when, int) else datetime.fromisoformat(when)
    except (ValueError, OverflowError, OSError):
        return Markup('<span title="no time that a calendar has">{}</span>').format(str(when))
    text = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{} UTC</time>').format(text, text[:19].replace("T", " "))


def visible(text: str) -> str:
    """Return a text with pictures in place of control characters and those that change the direction of writing."""
    return text.translate(_PICTURES)


def count(value: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun: 1 record, 2 records."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"
