"""Charts: SVG that the server draws, so that a page needs no script and no inline style for them."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from tailrace.console.web.formats import UNKNOWN, number, span

Points = Sequence[tuple[float, float]]
"""Seconds and values, oldest first."""
NOUNS = (" messages", " records")
"""Units that are words, of which one is without an s."""
_EMPTY = Markup('<span class="none" title="Values come while a page is open">{}</span>').format(UNKNOWN)


def _told(value: float, unit: str) -> str:
    """Return a value with its unit: 5/s, 1 message, 2 messages."""
    rounded = round(value, 1)
    noun = unit.removesuffix("s") if rounded == 1 and unit in NOUNS else unit
    return f"{number(rounded)}{noun}"


def _line(points: Points, width: float, height: float, top: float) -> str:
    first, last = points[0][0], points[-1][0]
    long = (last - first) or 1.0
    return " ".join(
        f"{(t - first) / long * width:.1f},{height - 1 - (v / top if top else 0) * (height - 3):.1f}" for t, v in points
    )


def sparkline(points: Points, what: str, unit: str = "") -> Markup:
    """Return a small chart, a line without axes, with a text for screen readers."""
    if len(points) < 2:
        return _EMPTY
    top = max(v for _, v in points)
    label = f"{what}: now {_told(points[-1][1], unit)}, highest {_told(top, unit)}"
    line = _line(points, 96, 24, top)
    return Markup(
        '<svg class="spark" viewBox="0 0 96 24" width="96" height="24" role="img" aria-label="{}">'
        '<title>{}</title><polygon points="0,24 {} 96,24"/><polyline points="{}"/></svg>'
    ).format(label, label, line, line)


def chart(points: Points, what: str, unit: str = "") -> Markup:
    """Return a line over time with its highest value and its span."""
    if len(points) < 2:
        return Markup('<p class="chart quiet">A line comes here while this page is open.</p>')
    top = max(v for _, v in points)
    long = span(points[-1][0] - points[0][0])
    now, most = _told(points[-1][1], unit), _told(top, unit)
    label = f"{what} over the last {long}: now {now}, highest {most}"
    line = _line(points, 600, 120, top)
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 600 120" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<line x1="0" y1="119" x2="600" y2="119"/><line x1="0" y1="60" x2="600" y2="60"/>'
        '<polygon points="0,120 {} 600,120"/><polyline points="{}"/></svg>'
        "<figcaption><span>{} ago</span><span>highest {}</span><span>now {}</span></figcaption></figure>"
    ).format(label, line, line, long, most, now)
