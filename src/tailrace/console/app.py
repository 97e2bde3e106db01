"""The application: the API, metrics, health checks and pages, behind the checks that every request passes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.console import metrics, problems
from tailrace.console.api.table import OPERATIONS
from tailrace.console.open_home import OpenHome
from tailrace.console.problems import Refused
from tailrace.console.router import PREFIX, Router
from tailrace.console.security import HEADERS
from tailrace.console.web import site
from tailrace.errors import TailraceError

_log = logging.getLogger("tailrace.console")
_headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Guarded:
    """Middleware around the whole application: checks the Host of every request, and adds the headers of `security` to
    every answer.

    It hands the API's requests to the router itself, by the beginning of the path: a route's pattern does not match
    every character."""

    def __init__(self, app: ASGIApp, served: OpenHome) -> None:
        self._app, self._served = app, served
        self._api = Router(served, OPERATIONS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it if its Host is not a name of this server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _headers if pair[0] not in given)]
            await send(message)

        try:
            self._served.gate.check_host(Request(scope))
        except Refused as error:
            await problems.answer(error)(scope, receive, guarded)
            return
        below = scope["path"] == PREFIX or scope["path"].startswith(f"{PREFIX}/")
        await (self._api if below else self._app)(scope, receive, guarded)


def app_of(served: OpenHome) -> Starlette:
    """Return the application that serves one home."""

    async def show_metrics(request: Request) -> Response:
        try:
            served.gate.admit(request)
            served.check_home()
            samples = await served.run(lambda: [*metrics.of_home(served.home)])
        except (Refused, TailraceError) as error:
            return problems.answer(error)
        text = metrics.rendered([*samples, *metrics.of_commits(served.commit_times)])
        return Response(text, media_type=metrics.MEDIA_TYPE)

    async def is_alive(request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def is_ready(request: Request) -> Response:
        try:
            await served.check_storage()
        except TailraceError as error:
            _log.warning("not ready: %s", error)
            return PlainTextResponse("the home does not answer\n", 503)
        return PlainTextResponse("ready\n")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threads = ThreadPoolExecutor(served.limits.threads, thread_name_prefix="tailrace-console")
        asyncio.get_running_loop().set_default_executor(threads)
        yield
        await served.close()

    return Starlette(
        routes=[
            Route("/metrics", show_metrics),
            Route("/healthz", is_alive),
            Route("/readyz", is_ready),
            *site.routes(served),
        ],
        middleware=[Middleware(Guarded, served=served)],
        lifespan=lifespan,
    )
