"""A server on loopback that has one answer to every request: refusals that no other server can be brought to give."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.process import HOST


@contextlib.contextmanager
def refusing(status: int, code: str, message: str = "", **more: Any) -> Iterator[str]:
    """The URL of a server that refuses everything as DynamoDB would: an exception's name, a message, its fields."""
    prefix = "com.amazonaws.dynamodb.v20120810#"
    body = json.dumps({"__type": prefix + code, "message": message, **more}).encode()

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer((HOST, 0), Refusal)
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
