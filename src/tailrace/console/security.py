"""Security of the server: tokens, roles, and the checks that come before anything else.

The gate checks Host on every request: after DNS rebinding a page of another site sends its own name as Host, and a GET
carries no Origin.  It checks Origin on writes.  A caller sends its token as `Authorization: Bearer …`, or in a cookie
that the site sets when a browser opens it with `?token=…`; a write with the cookie must have an Origin.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from tailrace.console.problems import Refused
from tailrace.errors import BadSetting

Role: TypeAlias = Literal["viewer", "operator"]
ROLES: tuple[Role, ...] = ("viewer", "operator")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SHORTEST_TOKEN = 16
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_COMMENT = re.compile(r"(?:^|\s)#")
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers that every answer carries."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: its name and its role."""

    name: str
    role: Role


class Tokens:
    """The tokens that the server accepts, and the caller of each."""

    def __init__(self, known: dict[str, Principal]) -> None:
        self._known = {token.encode(): who for token, who in known.items()}

    @classmethod
    def fresh(cls) -> tuple[Tokens, str]:
        """Make a new token of an operator, for as long as the server runs; return it with the tokens."""
        token = secrets.token_urlsafe(32)
        return cls({token: Principal("operator", "operator")}), token

    @classmethod
    def of_file(cls, path: Path) -> Tokens:
        """Read the tokens of a file: a line `ROLE NAME TOKEN` for each; `#` after a space, or first, begins a comment.
        Raise `BadSetting` for a line that is wrong, and for a file that other users may read."""
        try:
            mode, text = path.stat().st_mode, path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise BadSetting(f"the token file {path} cannot be read: {why}") from None
        if os.name == "posix" and mode & 0o077:
            raise BadSetting(f"others may read the token file {path} (mode {mode & 0o777:o}); `chmod 600 {path}`")
        known: dict[str, Principal] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if words := _COMMENT.split(line, 1)[0].split():
                token, who = _parsed(path, number, words)
                if token in known:
                    raise BadSetting(f"line {number} of {path} has the token of {known[token].name!r} again")
                known[token] = who
        if not known:
            raise BadSetting(f"the token file {path} has no token; a line is: operator ada {secrets.token_urlsafe(24)}")
        return cls(known)

    def find(self, given: str) -> Principal | None:
        """Return the caller of a token, or None.  Compares every known token, in constant time."""
        found, offered = None, given.encode("utf-8", "surrogateescape")
        for token, who in self._known.items():
            if hmac.compare_digest(token, offered):
                found = who
        return found


def _parsed(path: Path, number: int, words: list[str]) -> tuple[str, Principal]:
    role = next((role for role in ROLES if words[0] == role), None)
    if len(words) != 3 or role is None:
        raise BadSetting(f"line {number} of {path} is no token; write `viewer NAME TOKEN` or `operator NAME TOKEN`")
    if len(words[2]) < SHORTEST_TOKEN:
        raise BadSetting(f"the token on line {number} of {path} is too short: at least {SHORTEST_TOKEN} characters")
    return words[2], Principal(words[1], role)


class Gate:
    """The checks of one server: the hosts that it answers for, the tokens that it accepts."""

    def __init__(self, tokens: Tokens, hosts: frozenset[str], cookie: str, *, read_only: bool = False) -> None:
        self.tokens, self.hosts, self.cookie, self.read_only = tokens, hosts, cookie, read_only

    def check_host(self, request: HTTPConnection) -> None:
        """Refuse a request whose Host is not a name of this server."""
        given = request.headers.getlist("host")
        name = host_name(given[0]) if len(given) == 1 else None
        if name is None or name not in self.hosts:
            shown = repr(given[0][:80]) if given else "none"
            raise Refused(
                421, "Wrong host", f"this server does not answer for the Host {shown}; `--allow-host NAME` adds a name"
            )

    def check_origin(self, request: HTTPConnection, *, by_cookie: bool) -> None:
        """Refuse a write that a page of another origin has sent."""
        if request.scope["method"] in SAFE_METHODS:
            return
        given = request.headers.get("origin")
        if given is None and not by_cookie:
            return
        own = request.headers.get("host", "").lower()
        if given is None or _authority(given) != own:
            raise Refused(403, "Wrong origin", f"a write from the origin {str(given)[:80]!r} is refused")

    def authenticate(self, request: HTTPConnection) -> tuple[Principal | None, bool]:
        """Return the caller, or None, and whether its token came in the cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.find(token.strip()), False
        kept = request.cookies.get(self.cookie)
        return (self.tokens.find(kept), True) if kept else (None, False)

    def admit(self, request: HTTPConnection) -> Principal:
        """Return the caller; refuse the request if a check fails."""
        self.check_host(request)
        who, by_cookie = self.authenticate(request)
        if who is None:
            raise Refused(
                401, "No token", "send the token that `tailrace serve` printed: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": 'Bearer realm="tailrace"'},
            )  # fmt: skip
        self.check_origin(request, by_cookie=by_cookie)
        return who

    def allow(self, who: Principal, role: Role) -> None:
        """Refuse an operation that the caller's role, or a read-only server, does not allow."""
        if role == "operator" and self.read_only:
            raise Refused(403, "Read only", "this server was started with --read-only: it changes nothing")
        if role == "operator" and who.role != "operator":
            raise Refused(403, "Not allowed", f"{who.name!r} is a viewer; this needs the role operator")


def host_name(given: str) -> str | None:
    """Return the name in the Host header of a request, to be checked, without the port; None if the header is
    malformed."""
    try:
        return None if not given or set(given) & set("@/?#\\") else urlsplit(f"//{given}").hostname
    except ValueError:
        return None


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def hosts_of(bind: str, allowed: list[str] | tuple[str, ...]) -> frozenset[str]:
    """Return the names that a server bound to an address answers for."""
    own = LOOPBACK if bind in LOOPBACK else frozenset({bind} - {"0.0.0.0", "::"})
    return own | {name.lower() for name in allowed}
