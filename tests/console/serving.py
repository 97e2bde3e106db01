"""A server for the length of a block, in this process, and a client that sends exactly what it is told."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from tailrace.console.app import app_of
from tailrace.console.limits import Limits
from tailrace.console.open_home import OpenHome
from tailrace.console.security import Gate, Principal, Tokens, hosts_of
from tailrace.console.server import bound, config

OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass
class Client:
    """Asks one server, with one token."""

    port: int
    token: str | None = OPERATOR
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own; underscores in names of headers are dashes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data, sent = self._prepared(body, headers)
            connection.request(method, path if path.startswith("/") else f"/api/v1/{path}", data, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def _prepared(self, body: Any, headers: dict[str, str]) -> tuple[bytes | None, dict[str, str]]:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if body is None or isinstance(body, bytes):
            return body, sent
        return json.dumps(body).encode(), {"Content-Type": "application/json", **sent}

    def get(self, path: str, **headers: str) -> Answer:
        """GET."""
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """POST."""
        return self.ask("POST", path, body, **headers)

    @contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """An answer that goes on."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/{path}", None, self._prepared(None, headers)[1])
            yield connection.getresponse()
        finally:
            connection.close()


@contextmanager
def running(home: str | Path, *, read_only: bool = False, limits: Limits | None = None) -> Iterator[Client]:
    """A server of a home."""
    tokens = Tokens({OPERATOR: Principal("ada", "operator"), VIEWER: Principal("vic", "viewer")})
    with bound("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        gate = Gate(tokens, hosts_of("127.0.0.1", ()), f"tailrace-{port}", read_only=read_only)
        server = uvicorn.Server(config(app_of(OpenHome(str(home), gate, limits)), limits or Limits()))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        try:
            yield Client(port)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
