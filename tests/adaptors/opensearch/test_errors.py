"""What is wrong with a cluster: one line, and what mends it.  And a cluster that is busy, or answers by half."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptors.opensearch.settings import SearchSink
from tailrace.adaptors.opensearch.sink import bulk
from tailrace.adaptors.opensearch.sink.writer import SearchWriter
from tailrace.errors import BadSetting, NotReady, Rejected, Throttled, TimedOut, Unavailable
from tests.adaptors.opensearch.place import WHO, Place, rows
from tests.servers.process import HOST, free_ports

Reply = Callable[[str, bytes], "tuple[int, bytes] | None"]
"""From a path and a body to an answer; None: pass it on to the real node."""


@contextlib.contextmanager
def between(place: Place | None, reply: Reply, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server in front of the node that gives some answers itself."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            made = reply(self.path, body)
            if made is None:
                assert place is not None
                passed = place.http.request(
                    self.command, place.url + self.path, body=body or None, retries=False, timeout=60,
                    headers={"content-type": self.headers.get("content-type", "application/json")},
                )  # fmt: skip
                made = passed.status, passed.data
            self.send_response(made[0])
            self.send_header("content-type", "application/json; charset=UTF-8")
            self.send_header("content-length", str(len(made[1])))
            self.end_headers()
            self.wfile.write(made[1])

        do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None: ...

    server = Quiet((HOST, 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http{'s' if context else ''}://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(status: int, kind: str, reason: str = "why") -> Reply:
    error = {"type": kind, "reason": reason}
    return lambda path, body: (
        status,
        json.dumps({"error": {"root_cause": [error], **error}, "status": status}).encode(),
    )


def checked(url: str, **settings: Any) -> None:
    with contextlib.closing(SearchWriter(SearchSink(uri=url, **settings))) as sink:
        sink.check()


@pytest.mark.parametrize(
    ("reply", "kind", "why"),
    [
        (refusal(401, "security_exception"), NotReady, "does not accept user and password"),
        (
            refusal(403, "security_exception", "no permissions for [x]"),
            NotReady,
            r"no permissions for \[x\]; give its role",
        ),
        (refusal(503, "cluster_manager_not_discovered_exception"), Throttled, "refused for now"),
        (refusal(500, "null_pointer_exception"), Unavailable, "null_pointer_exception"),
        (lambda path, body: (200, b"<html>hello</html>"), Unavailable, "proxy, or another server"),
        (lambda path, body: (200, b'{"version": {"number": "2.1'), Unavailable, "not whole"),
        (lambda path, body: (200, b'{"hello": "world"}'), NotReady, "is not OpenSearch"),
        (lambda path, body: (200, b'{"version": {"number": "6.8.0"}}'), NotReady, r"version 6\.8; .*can be used"),
    ],
)
def test_what_a_cluster_says(reply: Reply, kind: type[Exception], why: str) -> None:
    with between(None, reply) as url, pytest.raises(kind, match=why) as raised:
        checked(url.replace("//", "//user:top-secret@"))
    assert "\n" not in str(raised.value)
    assert "top-secret" not in str(raised.value)


def test_wrong_places(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    for uri, kind, why in (
        (f"http://{HOST}:{port}", Unavailable, "is it running there"),
        ("http://no-such-host.invalid:9200", Unavailable, "no such host"),
        ("search.example.com:9200", BadSetting, "not as https://user:password@host:9200"),
        ("http://host:port", BadSetting, "not as https"),
    ):
        with pytest.raises(kind, match=why) as raised:
            checked(uri)
        assert "\n" not in str(raised.value)
    with (
        between(None, lambda path, body: (200, b"{}")) as url,
        pytest.raises(NotReady, match=r"speaks http, not https.*http://"),
    ):
        checked(url.replace("http:", "https:"))
    assert "secret" not in repr(SearchWriter(SearchSink(uri="http://u:secret@h", api_key="secret")))


def test_certificates(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with between(None, lambda path, body: (200, b'{"version": {"number": "6.8.0"}}'), context) as url:
        with pytest.raises(NotReady, match=r"certificate is not trusted.*ca = "):
            checked(url)
        with pytest.raises(NotReady, match=r"version 6\.8"):
            checked(url, ca=str(certificate))


def items(body: bytes, said: Callable[[str], dict[str, Any]]) -> bytes:
    """An answer to a bulk request, from what is said of each id."""
    actions = [json.loads(line) for line in body.splitlines() if b'"version_type"' in line]
    found = [{kind: {"_id": one["_id"], **said(one["_id"])}} for action in actions for kind, one in action.items()]
    return json.dumps({"errors": True, "items": found}).encode()


BUSY = {"status": 429, "error": {"type": "opensearch_rejected_execution_exception", "reason": "queue full"}}


@pytest.mark.server
def test_what_a_busy_cluster_refuses_is_sent_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a request only the documents that were refused, and a request as a whole; each time after a longer pause."""
    sent, slept = list[list[str]](), list[float]()

    def reply(path: str, body: bytes) -> tuple[int, bytes] | None:
        if not path.startswith("/_bulk?filter_path"):
            return None
        sent.append(re.findall(rb'"_id":"(\d)"', body))
        if len(sent) == 1:
            return 429, b'{"error": {"type": "circuit_breaking_exception", "reason": "too large"}, "status": 429}'
        if len(sent) == 2:  # two are taken, one is not
            kept = b"".join(line for line in body.splitlines(keepends=True) if b'"3"' not in line and b":3" not in line)
            place.http.request("POST", place.url + "/_bulk", body=kept, headers={"content-type": "application/json"})
            return 200, items(body, lambda id: BUSY if id == "3" else {"status": 201})
        return None

    with between(place, reply) as url, contextlib.closing(place.writer(uri=url)) as sink:
        monkeypatch.setattr(sink._bulk, "_sleep", slept.append)
        sink.finish([sink.stage([rows({"id": [1, 2, 3]})])], WHO, {"0": 1})
    assert sent == [[b"1", b"2", b"3"], [b"1", b"2", b"3"], [b"3"]]
    assert slept[0] < slept[1]
    assert list(place.documents("c")) == ["1", "2", "3"]


@pytest.mark.server
def test_patience_ends_and_nothing_is_acknowledged(place: Place) -> None:
    def reply(path: str, body: bytes) -> tuple[int, bytes] | None:
        return (200, items(body, lambda id: BUSY)) if path.startswith("/_bulk?filter_path") else None

    with between(place, reply) as url, contextlib.closing(place.writer(uri=url, patience=0.0)) as sink:
        with pytest.raises(Throttled, match="queue full"):
            sink.finish([sink.stage([rows({"id": [1]})])], WHO, {"0": 1})
        assert sink.restore(*WHO[:2]) is None


@pytest.mark.server
def test_half_an_answer_is_none(place: Place) -> None:
    def reply(path: str, body: bytes) -> tuple[int, bytes] | None:
        return (
            (200, b'{"errors": false, "items": [{"index": {"_id": "1", "status": 201}}]}')
            if "filter_path" in path
            else None
        )

    with between(place, reply) as url, contextlib.closing(place.writer(uri=url)) as sink:
        with pytest.raises(TimedOut, match="was sent 2 operations and answered 1"):
            sink.finish([sink.stage([rows({"id": [1, 2]})])], WHO, {"0": 1})
        assert sink.restore(*WHO[:2]) is None


@pytest.mark.server
def test_an_answer_that_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents are written, the answer is a proxy's; the writer sends them again, and none is lost or older."""
    lost = [True]

    def reply(path: str, body: bytes) -> tuple[int, bytes] | None:
        if "filter_path" in path and lost.pop() if lost else False:
            headers = {"content-type": "application/json"}
            place.http.request("POST", place.url + "/_bulk", body=body, headers=headers)
            return 504, b"<html>gateway timeout</html>"
        return None

    with between(place, reply) as url:
        place.write(rows({"id": [1, 2], "n": [1, 1]}), 1, uri=url)
    place.write(rows({"id": [1], "n": [2]}), 2)
    assert {id: d["n"] for id, d in place.documents("c").items()} == {"1": 2, "2": 1}


@pytest.mark.server
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"index.blocks.write": True}, r"read-only.*PUT /.*index\.blocks\.write.*null"),
        ({"index.blocks.read_only": True}, r"read-only.*PUT /.*index\.blocks\.read_only.*null"),
        ({"index.translog.durability": "async"}, r"not on its disk.*PUT /.*request"),
        ({"index.mapping.total_fields.limit": 1}, r"total fields.*index\.mapping\.total_fields\.limit.*allows more"),
    ],
)
def test_indexes_that_cannot_be_written(place: Place, settings: dict[str, Any], why: str) -> None:
    place.ask("PUT", f"/{place.index('c')}")
    place.ask("PUT", f"/{place.index('c')}/_settings", settings)
    with pytest.raises(NotReady, match=why) as raised:
        place.write(rows({"id": [1], "n": [1]}), 1)
    assert "\n" not in str(raised.value)
    place.ask("PUT", f"/{place.index('c')}/_settings", dict.fromkeys(settings))


@pytest.mark.server
def test_an_index_that_is_closed_to_writes_while_it_is_written(place: Place) -> None:
    with contextlib.closing(place.writer()) as sink:
        sink.finish([sink.stage([rows({"id": [1]})])], WHO, {"0": 1})
        place.ask("PUT", f"/{place.index('c')}/_settings", {"index.blocks.write": True})
        with pytest.raises(NotReady, match=r"the index is read-only: PUT /"):
            sink.finish([sink.stage([rows({"id": [2]})])], WHO, {"0": 2})
        place.ask("PUT", f"/{place.index('c')}/_settings", {"index.blocks.write": None})
        sink.finish([sink.stage([rows({"id": [2]})])], WHO, {"0": 2})
    assert list(place.documents("c")) == ["1", "2"]


@pytest.mark.server
def test_indexes_that_are_missing(place: Place) -> None:
    with pytest.raises(NotReady, match=r"set create = true, or: PUT /.*properties"):
        place.write(rows({"id": [1]}), 1, create=False)


@pytest.mark.server
def test_a_document_that_is_too_large_for_a_request(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy allows less than the cluster: the request is halved, and the one document that is too large is named."""
    monkeypatch.setattr(bulk, "REQUEST_BYTES", 10**9)

    def reply(path: str, body: bytes) -> tuple[int, bytes] | None:
        return (413, b"<html>too large</html>") if "filter_path" in path and len(body) > 5000 else None

    with between(place, reply) as url:
        place.write(rows({"id": list(range(100)), "t": ["x" * 100] * 100}), 1, uri=url)
        assert len(place.documents("c")) == 100
        with pytest.raises(Rejected, match="'7' has") as refused:
            place.write(rows({"id": [6, 7], "t": ["small", "x" * 6000]}), 2, uri=url)
    assert refused.value.id == "7"
