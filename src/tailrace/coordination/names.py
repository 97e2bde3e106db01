"""Names that people give: to topics, groups, members, producers."""

from __future__ import annotations

import re

from tailrace.errors import BadName

_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}\Z")


def check_name(what: str, name: str) -> str:
    """Refuse a name that cannot be a topic's, a group's or a producer's."""
    if not isinstance(name, str) or not _NAME.match(name):
        shown = repr(name) if len(str(name)) < 60 else f"{str(name)[:40]!r}… ({len(str(name))} characters)"
        raise BadName(f"{shown} cannot be a {what}'s name: 1 to 200 letters, digits, '-' and '_'")
    return name
