"""The router of the API: finds a request's operation, checks the caller, calls the handler and encodes its answer.

It splits a path before it decodes the escapes, so that a name may have a slash in it: /events/streams/Cart-a%2Fb.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.console import problems
from tailrace.console.limits import body_of
from tailrace.console.open_home import OpenHome
from tailrace.console.operation import JSON, Call, Operation, decoded, query_of
from tailrace.console.problems import Refused
from tailrace.errors import BadInput, BadName, TailraceError

PREFIX = "/api/v1"
_log = logging.getLogger("tailrace.console")
_encode = msgspec.json.Encoder().encode


class Router:
    """Answers the requests below /api/v1."""

    def __init__(self, served: OpenHome, operations: Iterable[Operation]) -> None:
        self._served = served
        self._routes: dict[int, list[tuple[list[str], dict[str, Operation]]]] = {}
        for one in operations:
            self._add(one)

    def _add(self, one: Operation) -> None:
        parts = one.path.strip("/").split("/")
        for known, methods in self._routes.setdefault(len(parts), []):
            if known == parts:
                methods[one.method] = one
                return
        self._routes[len(parts)].append((parts, {one.method: one}))
        self._routes[len(parts)].sort(key=lambda route: [part.startswith("{") for part in route[0]])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the answer to any failure is a problem document."""
        request = Request(scope, receive)
        try:
            response = await self.answer(request)
        except (Refused, TailraceError) as error:
            if problems.status_of(error) >= 500:
                _log.warning("%s %s: %s", request.method, request.url.path, error)
            response = problems.answer(error)
        except Exception as error:
            number = secrets.token_hex(4)
            _log.exception("%s: %s %s failed", number, request.method, request.url.path)
            response = problems.answer(error, number)
        await response(scope, receive, send)

    async def answer(self, request: Request) -> Response:
        """Return the answer to one request; raise what a check or the handler raises."""
        who = self._served.gate.admit(request)
        operation, path = self._find(request)
        self._served.gate.allow(who, operation.role)
        call = Call(self._served, request, who, path)
        arguments: list[Any] = []
        if operation.query is not None or request.query_params:
            arguments.append(_query(request, operation))
        if operation.body is not None or operation.takes:
            call.media = _media(request, operation)
            call.raw = await body_of(request, self._served.limits)
            if operation.body is not None and call.media == JSON:
                arguments.append(decoded(call.raw, operation.body))
            elif operation.body is not None:
                arguments.append(None)
        self._served.check_home()
        given = await operation.handler(call, *arguments)
        if isinstance(given, Response):
            return given
        if operation.answer is None:
            return Response(status_code=204)
        return Response(_encode(given), operation.status, media_type=JSON)

    def _find(self, request: Request) -> tuple[Operation, dict[str, str]]:
        segments = _segments(request.scope)
        for parts, methods in self._routes.get(len(segments), []):
            if all(part.startswith("{") or part == given for part, given in zip(parts, segments, strict=True)):
                method = "GET" if request.method == "HEAD" else request.method
                if method not in methods:
                    allowed = ", ".join(sorted(methods))
                    raise Refused(405, "Wrong method", f"this takes {allowed}", {"Allow": allowed})
                named = {p[1:-1]: s for p, s in zip(parts, segments, strict=True) if p.startswith("{")}
                return methods[method], named
        raise Refused(404, "Nothing here", f"there is nothing at this path; {PREFIX}/openapi.json lists all paths")


def _segments(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        below = raw.partition(b"?")[0].decode("ascii").removeprefix(PREFIX).strip("/")
        return [unquote_to_bytes(part).decode() for part in below.split("/")]
    except UnicodeDecodeError:
        raise BadName("the path is no UTF-8 behind its escapes") from None


def _query(request: Request, operation: Operation) -> Any:
    """Return the parameters behind the `?` as the operation's type; refuse one that is given twice."""
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{twice!r} is given twice")
    if operation.query is None:
        raise BadInput(f"this takes nothing behind the `?`, and {names[0][:40]!r} was given")
    return query_of(dict(pairs), operation.query)


def _media(request: Request, operation: Operation) -> str:
    """Return the media type of the body; refuse one that the operation does not take."""
    offered = (*((JSON,) if operation.body is not None else ()), *operation.takes)
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower() or offered[0]
    if given not in offered:
        hint = " (curl: -H 'Content-Type: application/json')" if JSON in offered else ""
        raise Refused(415, "Wrong media type", f"a body is {' or '.join(offered)} here, not {given[:60]!r}{hint}")
    return given
