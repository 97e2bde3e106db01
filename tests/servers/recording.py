"""A proxy before a server that speaks AWS's protocols, which takes down every request as a policy sees it."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.process import HOST

TRANSACTED = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
OBJECT_ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}


class Request(NamedTuple):
    """What somebody asked for: an action; the object, or "" for a table or a bucket; and the hash key or the prefix."""

    action: str
    name: str = ""
    keys: tuple[str, ...] = ()


def requests_of(method: str, path: str, target: str, body: bytes) -> list[Request]:
    """The requests that one HTTP request makes: a transaction makes one for each of its items."""
    if target:
        return _of_table(target.split(".")[1], json.loads(body))
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    _, _, key = unquote(parts.path).lstrip("/").partition("/")
    if "list-type" in query:
        return [Request("s3:ListBucket", "", (query["prefix"][0],))]
    if "delete" in query:
        return [Request("s3:DeleteObject", name) for name in re.findall(r"<Key>([^<]+)</Key>", body.decode())]
    return [Request(OBJECT_ACTIONS[method], key)]


def _of_table(operation: str, asked: Any) -> list[Request]:
    if operation == "TransactWriteItems":
        return [
            Request(f"dynamodb:{TRANSACTED[kind]}", "", (_hash(one),))
            for item in asked["TransactItems"]
            for kind, one in item.items()
        ]
    keys = () if operation in ("Scan", "DescribeTable") or "TableName" not in asked else (_hash(asked),)
    return [Request(f"dynamodb:{operation}", "stream" if "Stream" in operation or "Shard" in str(asked) else "", keys)]


def _hash(asked: Any) -> str:
    wire = asked.get("Key") or asked.get("Item")
    return str(wire["p"]["S"] if wire else asked["ExpressionAttributeValues"][":p"]["S"])


class Recording:
    """The proxy's address, and what went through it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Request] = []

    def take(self) -> list[Request]:
        """What was asked for since the last call of this."""
        taken, self.requests = self.requests, []
        return taken


@contextlib.contextmanager
def recording(target: str) -> Iterator[Recording]:
    """Take down what is asked of a server, for the length of a block."""
    port = int(target.rsplit(":", 1)[1])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for an answer: a second one would wait 40 ms for the first to be acknowledged
        disable_nagle_algorithm = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.requests += requests_of(self.command, self.path, self.headers.get("X-Amz-Target", ""), body)
            upstream = HTTPConnection(HOST, port)
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)
            upstream.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    made = Recording(f"http://{HOST}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
