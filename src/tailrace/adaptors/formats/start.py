"""The setting `start`, which says where a log is first read from: earliest, latest, or a time."""

from __future__ import annotations

import datetime as dt

from tailrace.errors import BadSetting


def moment(start: str) -> int | None:
    """The time that a start names, in milliseconds since 1970; None for earliest and latest."""
    if start in ("earliest", "latest"):
        return None
    try:
        at = dt.datetime.fromisoformat(start)
    except ValueError:
        raise BadSetting(f"start: {start!r} is neither earliest, latest nor a time as 2026-01-31T12:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp() * 1000)
