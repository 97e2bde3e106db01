"""Servers on loopback with answers made up beforehand: those that no other server can be brought to give."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from tests.servers.process import HOST

Reply: TypeAlias = Callable[[str, bytes], tuple[int, bytes]]
"""From an operation and a request's body to a status and an answer."""


@contextlib.contextmanager
def saying(reply: Reply) -> Iterator[str]:
    """The URL of a server that answers every request as `reply` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            operation = self.headers.get("X-Amz-Target", self.command).split(".")[-1]
            status, body = reply(operation, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer((HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answering(answer: Callable[[str, Any], tuple[int, dict[str, Any]]]) -> contextlib.AbstractContextManager[str]:
    """A server that speaks DynamoDB's protocol: from an operation and its parameters to a status and an answer."""

    def reply(operation: str, body: bytes) -> tuple[int, bytes]:
        status, content = answer(operation, json.loads(body))
        return status, json.dumps(content).encode()

    return saying(reply)


def refusal(code: str, message: str = "", **more: Any) -> dict[str, Any]:
    """An exception as DynamoDB writes it: its name, a message, its fields."""
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more}
