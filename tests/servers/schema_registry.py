"""A schema registry of the test's own: what of Confluent's REST protocol readers of schemas use, with a password."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.servers.process import HOST

LOGIN = "reader:right-password"


class Registry:
    """Schemas by id, and by subject and version."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self._by_id: dict[int, dict[str, Any]] = {}
        self._by_subject: dict[tuple[str, int], int] = {}
        self._serialized: dict[int, str] = {}

    def add(
        self, subject: str, schema: str | bytes, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """A new version of a subject, and its id.  Of Protobuf the descriptor, as bytes."""
        id = len(self._by_id) + 1
        found: dict[str, Any] = {"schema": schema if isinstance(schema, str) else 'syntax = "proto3";'}
        if kind != "AVRO":
            found["schemaType"] = kind
        if references:
            found["references"] = list(references)
        if isinstance(schema, bytes):
            self._serialized[id] = base64.b64encode(schema).decode()
        self._by_id[id] = found
        version = 1 + sum(name == subject for name, _ in self._by_subject)
        self._by_subject[subject, version] = id
        return id

    def answer(self, path: str) -> dict[str, Any] | None:
        """What a GET of a path is answered with; None: 404."""
        self.asked.append(path)
        parts, serialized = urlsplit(path).path.split("/")[1:], "format=serialized" in path
        if parts[:2] == ["schemas", "ids"]:
            id = int(parts[2])
        else:
            id = self._by_subject.get((unquote(parts[1]), int(parts[3])), 0)
        found = self._by_id.get(id)
        return found and {**found, **({"schema": self._serialized[id]} if serialized else {})}


@contextlib.contextmanager
def schema_registry() -> Iterator[Registry]:
    """A registry on a free port of loopback; `url` has the password."""
    registry = Registry()
    wanted = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = registry.answer(self.path)
            status = 401 if self.headers.get("Authorization") != wanted else 200 if found else 404
            body = json.dumps(found if status == 200 else {"error_code": status, "message": "no"}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        registry.url = f"http://{LOGIN}@{HOST}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield registry
        server.shutdown()
        thread.join()
