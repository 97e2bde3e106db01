"""A receiver of webhooks on loopback: keeps what it takes, and misbehaves as it is told."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.servers.process import HOST


class Request(NamedTuple):
    """A request, and whether it was taken."""

    path: str
    headers: dict[str, str]
    body: bytes
    taken: bool

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in it."""
        found = json.loads(self.body)
        return list(found.get("messages", [found]))


class Answer(NamedTuple):
    """How a request is answered: `cut` ends the connection before that, `after` in the middle of it."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    cut: bool = False
    halfway: bool = False


TAKEN = Answer()
Behaviour = Callable[[int, Request], Answer]
"""From how many requests came before, and the request, to the answer."""


class Receiver:
    """What came, in the order in which it came."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour, self._lock = behaviour, threading.Lock()
        self.url = ""
        self.requests: list[Request] = []
        self.at_once = self.most_at_once = 0

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """What to answer to a request, which is kept."""
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            number = len(self.requests)
            given = Request(path, headers, body, taken=False)
            self.requests.append(given)
        answer = self._behaviour(number, given)
        with self._lock:
            self.at_once -= 1
            self.requests[number] = given._replace(taken=answer.status < 300)
        return answer

    def messages(self) -> list[dict[str, Any]]:
        """The messages of requests that were taken, each time they were."""
        return [message for request in self.requests if request.taken for message in request.messages]

    def once(self) -> dict[str, dict[str, Any]]:
        """The messages by their keys: what a receiver has that knows repeats."""
        return {message["key"]: message for message in self.messages()}


@contextlib.contextmanager
def receiving(behaviour: Behaviour = lambda n, r: TAKEN, context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """A receiver on a free port."""
    receiver = Receiver(behaviour)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = receiver.answer(self.path, {n.lower(): v for n, v in self.headers.items()}, body)
            if answer.cut:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body) + (100 if answer.halfway else 0)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.halfway

        def log_message(self, format: str, *args: object) -> None: ...

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None: ...

    server = Quiet((HOST, 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01})
    thread.start()
    receiver.url = f"http{'s' if context else ''}://{HOST}:{server.server_port}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
