"""A registry that sends its client elsewhere."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from tailrace.adaptors.formats.schema_registry import SchemaRegistry
from tailrace.errors import NotReady
from tests.servers.process import HOST
from tests.servers.schema_registry import LOGIN, Registry, schema_registry


@pytest.fixture
def elsewhere() -> Iterator[Registry]:
    with schema_registry() as made:
        made.add("orders", '{"type": "string"}')
        yield made


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_does_not_take_the_password_along(elsewhere: Registry, status: int) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Location", f"http://{elsewhere.url.rpartition('@')[2]}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        registry = SchemaRegistry(f"http://{LOGIN}@{HOST}:{server.server_port}")
        with pytest.raises(NotReady, match=f"answers {status}, a redirect, which is not followed") as refused:
            registry.by_id(1)
        server.shutdown()
        thread.join()
    assert "password" not in str(refused.value)
    assert elsewhere.asked == []
    assert SchemaRegistry(elsewhere.url).by_id(1).schema == '{"type": "string"}'
