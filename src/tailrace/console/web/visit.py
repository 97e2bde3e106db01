"""A visit: one request of a browser, with its query and form and the snapshots that all pages share."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from tailrace.console.operation import Call
from tailrace.console.web.snapshots import Snapshots
from tailrace.errors import BadInput

MOST_NOTICES = 1000
"""How many texts are kept for later visits; older ones go."""
LARGEST = 2**62
"""The largest number that a form takes: no offset reaches it."""


def path_to(*parts: object) -> str:
    """Return the path of a page for a link; a name in it may have any character."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


class Notices:
    """Notices of actions that are done; each is shown once, on the page that follows the action."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str) -> str:
        """Keep a text to show on the page of a later visit, and return its name."""
        name = secrets.token_urlsafe(9)
        self._kept[name] = text
        while len(self._kept) > MOST_NOTICES:
            self._kept.popitem(last=False)
        return name

    def take(self, name: str | None) -> str:
        """Return the kept text of this name the first time, and an empty text after that."""
        return self._kept.pop(name, "") if name else ""


@dataclass(slots=True)
class Visit(Call):
    """One admitted request of a browser."""

    pulse: Snapshots = field(kw_only=True)
    query: Mapping[str, str] = field(kw_only=True, default_factory=dict)
    form: Mapping[str, str] = field(kw_only=True, default_factory=dict)
    """The fields of the form that the browser has sent; empty for a GET."""

    def chosen(self, *offered: str) -> str:
        """Return the first media type: a page asks an operation for values, whatever the browser accepts."""
        return offered[0]

    @property
    def may_act(self) -> bool:
        """Whether the caller may change something."""
        return self.who.role == "operator" and not self.served.gate.read_only

    def whole(self, name: str, default: int, *, least: int = 0, most: int = LARGEST) -> int:
        """Return a whole number behind the `?`, or the default."""
        return whole(self.query.get(name, ""), name, default, least=least, most=most)

    def field(self, name: str) -> str:
        """Return a field of the form, without spaces around it."""
        return self.form.get(name, "").strip()

    def address(self, **changed: object) -> str:
        """Return this page's address with some parameters changed; None removes a parameter."""
        merged = {**self.query, **changed}
        kept = {name: str(value) for name, value in merged.items() if value is not None and name != "notice"}
        path = self.request.scope.get("raw_path", b"/").decode("ascii", "replace").partition("?")[0]
        return f"{path}?{urlencode(kept)}" if kept else path


def whole(text: str, name: str, default: int, *, least: int = 0, most: int = LARGEST) -> int:
    """Return a whole number that a browser's form or query has, or the default for an empty text; raise `BadInput` for
    anything else."""
    if not text.strip():
        return default
    plain = text.strip().replace(",", "")
    if not plain.isascii() or not plain.isdecimal() or len(plain) > 19 or not least <= int(plain) <= most:
        raise BadInput(f"{name} is a whole number from {least:,} to {most:,}, not {text[:40]!r}")
    return int(plain)
