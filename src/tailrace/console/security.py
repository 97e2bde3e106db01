"""What a caller may ask: tokens, roles, and the checks that come before anything else.

Host is checked on every request: after DNS rebinding a page of another site asks under its own name, and a GET carries
no Origin.  Origin is checked on writes.  A token comes as `Authorization: Bearer …`, or in a cookie that the page sets
when it is opened with `?token=…`; with the cookie a write must have an Origin.
"""

from __future__ import annotations

import hmac
import os
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
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer carries."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: its name and its role."""

    name: str
    role: Role


class Tokens:
    """The tokens that are accepted, and whose they are."""

    def __init__(self, known: dict[str, Principal]) -> None:
        self._known = {token.encode(): who for token, who in known.items()}

    @classmethod
    def fresh(cls) -> tuple[Tokens, str]:
        """A new token of an operator's, for as long as the server runs."""
        token = secrets.token_urlsafe(32)
        return cls({token: Principal("operator", "operator")}), token

    @classmethod
    def of_file(cls, path: Path) -> Tokens:
        """The tokens of a file: a line `ROLE NAME TOKEN` for each; empty lines and those after `#` are passed over."""
        try:
            mode, text = path.stat().st_mode, path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise BadSetting(f"the token file {path} cannot be read: {why}") from None
        if os.name == "posix" and mode & 0o077:
            raise BadSetting(f"others may read the token file {path} (mode {mode & 0o777:o}); `chmod 600 {path}`")
        known: dict[str, Principal] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if words := line.partition("#")[0].split():
                token, who = _parsed(path, number, words)
                if token in known:
                    raise BadSetting(f"line {number} of {path} has the token of {known[token].name!r} again")
                known[token] = who
        if not known:
            raise BadSetting(f"the token file {path} has no token; a line is: operator ada {secrets.token_urlsafe(24)}")
        return cls(known)

    def find(self, given: str) -> Principal | None:
        """Whose a token is; every known one is compared, in constant time."""
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
    """The checks of one server: which hosts it answers for, whose tokens it takes."""

    def __init__(self, tokens: Tokens, hosts: frozenset[str], cookie: str, *, read_only: bool = False) -> None:
        self.tokens, self.hosts, self.cookie, self.read_only = tokens, hosts, cookie, read_only

    def check_host(self, request: HTTPConnection) -> None:
        """Refuse a request under a name that this server is not known by."""
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
        """The caller, and whether a cookie named it."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.tokens.find(token.strip()), False
        kept = request.cookies.get(self.cookie)
        return (self.tokens.find(kept), True) if kept else (None, False)

    def admit(self, request: HTTPConnection) -> Principal:
        """The caller, once every check has passed."""
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
        """Refuse what the role, or this server, does not allow."""
        if role == "operator" and self.read_only:
            raise Refused(403, "Read only", "this server was started with --read-only: it changes nothing")
        if role == "operator" and who.role != "operator":
            raise Refused(403, "Not allowed", f"{who.name!r} is a viewer; this needs the role operator")


def host_name(given: str) -> str | None:
    """The name in a Host header, without the port; None if it is none."""
    try:
        return urlsplit(f"//{given}").hostname if given and "@" not in given else None
    except ValueError:
        return None


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") else None


def hosts_of(bind: str, allowed: list[str] | tuple[str, ...]) -> frozenset[str]:
    """The names that a server bound to an address answers for."""
    own = LOOPBACK if bind in LOOPBACK else frozenset({bind} - {"0.0.0.0", "::"})
    return own | {name.lower() for name in allowed}
