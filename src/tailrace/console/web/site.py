"""The site: finds the page of a browser's request and answers it, after the same checks as the API.

The address that `tailrace serve` prints has the token.  The site puts the token into a cookie, and redirects to an
address without it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from tailrace.console import problems
from tailrace.console.limits import body_of
from tailrace.console.open_home import OpenHome
from tailrace.console.operation import EVENTS
from tailrace.console.problems import Refused
from tailrace.console.streaming import BEAT_SECONDS, Batch, Item, streamed
from tailrace.console.web import templates
from tailrace.console.web.page import Ask, Live, Page, Shown, Went
from tailrace.console.web.pages.table import PAGES
from tailrace.console.web.snapshots import LONG, Snapshots
from tailrace.console.web.visit import Notices, Visit
from tailrace.errors import BadName, TailraceError

COOKIE_SECONDS = 30 * 24 * 3600
MOST_FIELDS = 1000
STATIC = Path(__file__).parent / "static"
HEADERS = {"Referrer-Policy": "same-origin"}
"""With no-referrer, as on other answers, a browser would send the site's own forms with the Origin null."""
CHANGED = "Nothing was done: a field has changed since you were shown what would happen. This is what would happen now."
_log = logging.getLogger("tailrace.console")


class Site(BaseRoute):
    """The route of every path that no other route has."""

    def __init__(self, served: OpenHome) -> None:
        self._served = served
        self._pulse, self._notices = Snapshots(2 * served.limits.poll_seconds), Notices()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every HTTP request."""
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the answer to any failure is a page that says why."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except (Refused, TailraceError) as error:
            response = self._failed(request, error)
        except Exception as error:
            number = secrets.token_hex(4)
            _log.exception("%s: %s %s failed", number, request.method, request.url.path)
            response = self._failed(request, error, number)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        segments = _segments(request.scope)
        if segments[:1] == ["static"]:
            return _static(segments)
        if segments == [""] and (token := request.query_params.get("token")) is not None:
            return _enter(self._served, token)
        who = self._served.gate.admit(request)
        page, path = _find(segments, request)
        self._served.gate.allow(who, page.role)
        query = dict(request.query_params)
        visit = Visit(self._served, request, who, path, pulse=self._pulse, query=query)
        self._served.check_home()
        if request.method == "POST":
            visit.form = await _form(request, self._served)
            return self._shown(visit, await _done(page, visit))
        if request.headers.get("accept", "").startswith(EVENTS):
            return streamed(visit, (page.live or _live(page))(visit), EVENTS)
        return self._shown(visit, await page.handler(visit))

    def _shown(self, visit: Visit, result: Shown | Ask | Went) -> Response:
        if isinstance(result, Went):
            self._pulse.forget()
            mark = "&" if "?" in result.to else "?"
            told = f"{mark}notice={self._notices.keep(result.notice)}" if result.notice else ""
            return RedirectResponse(result.to + told, 303, HEADERS)
        status = 400 if isinstance(result, Ask) and result.error else 200
        shown = templates.form(visit, result) if isinstance(result, Ask) else result
        notice = self._notices.take(visit.query.get("notice"))
        return HTMLResponse(templates.page(visit, shown, notice), max(status, shown.status), HEADERS)

    def _failed(self, request: Request, error: Exception, number: str = "") -> Response:
        problem = problems.problem_of(error, number)
        headers = {**HEADERS, **(error.headers if isinstance(error, Refused) else {})}
        if request.headers.get("accept", "").startswith(EVENTS):
            return problems.answer(error, number)
        template = "enter.html" if problem.status == 401 else "error.html"
        shown = Shown(template, "tailrace" if problem.status == 401 else problem.title, {"problem": problem})
        return HTMLResponse(templates.page(None, shown), problem.status, headers)


def routes(served: OpenHome) -> list[BaseRoute]:
    """Return the routes of the site: all pages of one home."""
    return [Site(served)]


def _segments(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        return [unquote_to_bytes(one).decode() for one in raw.partition(b"?")[0].decode("ascii")[1:].split("/")]
    except UnicodeDecodeError:
        raise BadName("the path is no UTF-8 behind its escapes") from None


def _find(segments: list[str], request: Request) -> tuple[Page, dict[str, str]]:
    if request.method not in ("GET", "HEAD", "POST"):
        raise Refused(405, "Wrong method", "pages take GET and POST", {"Allow": "GET, POST"})
    for page in PAGES:
        parts = page.path[1:].split("/")
        if len(parts) == len(segments) and all(
            part.startswith("{") or part == given for part, given in zip(parts, segments, strict=True)
        ):
            if request.method == "POST" and not page.acts:
                raise Refused(405, "Wrong method", "this page is only looked at", {"Allow": "GET"})
            return page, {p[1:-1]: s for p, s in zip(parts, segments, strict=True) if p.startswith("{")}
    raise Refused(404, "Nothing here", "there is no page at this address")


def _static(segments: list[str]) -> Response:
    known = {path.name: path for path in STATIC.iterdir()}
    if len(segments) != 2 or segments[1] not in known:
        raise Refused(404, "Nothing here", "there is no such file")
    return FileResponse(known[segments[1]], headers={"Cache-Control": "no-cache"})


def _enter(served: OpenHome, token: str) -> Response:
    if served.gate.tokens.find(token) is None:
        raise Refused(401, "No token", "This token is not known here; was the server started again?")
    response = RedirectResponse("/", 303)
    response.set_cookie(served.gate.cookie, token, max_age=COOKIE_SECONDS, httponly=True, samesite="strict", path="/")
    return response


async def _form(request: Request, served: OpenHome) -> dict[str, str]:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise Refused(415, "Wrong media type", "a form is application/x-www-form-urlencoded")
    text = (await body_of(request, served.limits)).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise Refused(400, "Too many fields", f"a form has at most {MOST_FIELDS} fields") from None


async def _done(page: Page, visit: Visit) -> Shown | Ask | Went:
    """Do what a form asks; after an error, return the form with the error above it and what was typed.

    If the form's fields have changed since its preview, nothing is done: the form comes back with a new preview."""
    seen = visit.form.get("seen")
    stale = "preview" not in visit.form and seen is not None and seen != templates.seen(visit.form)
    if stale:
        visit.form = {**visit.form, "preview": "yes"}
    try:
        result = await page.handler(visit)
        if stale and isinstance(result, Ask):
            result.error = CHANGED
        return result
    except TailraceError as error:
        typed, visit.form = visit.form, {}
        asked = await page.handler(visit)
        visit.form = typed
        if not isinstance(asked, Ask):
            raise
        asked.error = str(error)
        return asked


def _live(page: Page) -> Live:
    """Return the event stream of a page: its live regions, whenever they have changed."""

    async def changes(visit: Visit) -> AsyncGenerator[Batch, None]:
        sent: dict[str, str] = {}
        silent = time.monotonic()
        while True:
            started = time.monotonic()
            shown = await page.handler(visit)
            now = dict(templates.regions(visit, shown)) if isinstance(shown, Shown) else {}
            items = [Item("region", {"name": n, "html": html}) for n, html in now.items() if sent.get(n) != html]
            sent = now
            took = time.monotonic() - started
            if items or time.monotonic() - silent > BEAT_SECONDS:
                silent = time.monotonic()
                yield Batch(items)
            await asyncio.sleep(min(30.0, max(2 * visit.served.limits.poll_seconds, LONG * took)))

    return changes
