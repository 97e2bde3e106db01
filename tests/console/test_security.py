"""Who is let in: Host, token, cookie, Origin, roles, read-only; and what every answer carries."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tailrace.console.security import Tokens, hosts_of
from tailrace.console.server import Serving, bound, serve
from tailrace.errors import BadSetting
from tailrace.home import Home
from tests.console.serving import OPERATOR, VIEWER, Client, running

PATHS = ("/", "/metrics", "/healthz", "/readyz", "/api/v1/topics", "/api/v1/openapi.json", "/nothing", "/api/v1/no")


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_gets_nothing_not_even_by_get(client: Client, path: str) -> None:
    for host in (
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "127.0.0.1/evil",
        "127.0.0.1#evil",
        "127.0.0.1?evil",
        "",
        "[::1",
    ):
        assert client.get(path, Host=host).status == 421, host
    for host in ("localhost:1", "127.0.0.1", "[::1]:7117", "LOCALHOST"):
        assert client.get(path, Host=host).status != 421, host


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/topics", "/api/v1/openapi.json", "/api/v1/no", "/"])
def test_nothing_is_told_without_a_token(client: Client, path: str) -> None:
    for token in (None, "", "wrong", OPERATOR[:-1], OPERATOR + "x", "é"):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = Client(client.port, None, headers).get(path)
        assert answer.status == 401, token
        assert b"topic" not in answer.body


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers(client: Client, path: str) -> None:
    for asked in (client, Client(client.port, None)):
        headers = asked.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
        assert "server" not in headers


def test_the_token_in_the_address_becomes_a_cookie(client: Client) -> None:
    plain = Client(client.port, None)
    assert plain.get("/?token=wrong").status == 401
    entered = plain.get(f"/?token={OPERATOR}")
    assert (entered.status, entered.headers["Location"]) == (303, "/")
    cookie = entered.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    kept = {"Cookie": cookie.partition(";")[0]}
    first = Client(client.port, None, kept).get("/")
    assert first.status == 200
    assert b"ada (operator)" in first.body


def test_a_write_by_cookie_needs_the_origin(client: Client, home: Home) -> None:
    kept = Client(client.port, None, {"Cookie": f"tailrace-{client.port}={OPERATOR}"})
    body, own = {"name": "a"}, f"http://127.0.0.1:{client.port}"
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": f"{own}.evil.example"}):
        assert kept.post("topics", body, **origin).status == 403
    assert kept.get("topics", Origin="http://evil.example").status == 200
    assert home.topics() == []
    assert kept.post("topics", body, Origin=own).status == 201


def test_a_write_of_a_program_may_lack_the_origin_but_not_have_a_foreign_one(client: Client) -> None:
    assert client.post("topics", {"name": "a"}, Origin="http://evil.example").status == 403
    assert client.post("topics", {"name": "a"}).status == 201


def test_a_viewer_changes_nothing(client: Client, home: Home) -> None:
    viewer = Client(client.port, VIEWER)
    refused = viewer.post("topics", {"name": "a"})
    assert (refused.status, refused.json["title"]) == (403, "Not allowed")
    assert viewer.get("topics").status == 200
    assert home.topics() == []


def test_a_server_that_is_read_only_changes_nothing(home: Home, place: Path) -> None:
    with running(place, read_only=True) as client:
        assert client.post("topics", {"name": "a"}).json["title"] == "Read only"
        assert client.get("topics").json == {"topics": [], "next": None}
    assert home.topics() == []


def test_nobody_writes_to_the_audit_list_or_removes_it(client: Client, home: Home) -> None:
    assert client.post("topics", {"name": "_home-actions", "partitions": 5}).status == 403
    assert client.post("queues", {"name": "_home-actions"}).status == 403
    assert client.post("topics", {"name": "orders", "why": "kept"}).status == 201
    before = client.get("home/actions").json
    assert [one["why"] for one in before["actions"]] == ["kept"]
    for answer in (
        client.post("topics/_home-actions/records", {"records": [{"value": "no note"}]}),
        client.ask("PATCH", "topics/_home-actions", {"settings": {"retention_ms": 1}}),
        client.ask("PATCH", "topics/_home-actions", {"partitions": 2}),
        client.ask("DELETE", "topics/_home-actions", {"why": "nobody shall know"}),
    ):
        assert (answer.status, "audit list" in answer.json["detail"]) == (403, True)
    assert client.get("home/actions").json == before
    assert client.get("/").status == 200
    assert client.post("topics", {"name": "user-actions"}).status == 201
    assert client.post("topics/user-actions/records", {"records": [{"value": "x"}]}).status == 201


def test_tokens_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"

    def written(text: str, mode: int = 0o600) -> Path:
        file.write_text(text)
        file.chmod(mode)
        return file

    known = Tokens.of_file(written("# people\noperator ada 0123456789abcdef\n\nviewer vic fedcba9876543210 # ro\n"))
    assert str(known.find("fedcba9876543210")) == "Principal(name='vic', role='viewer')"
    assert known.find("") is None
    hashed = Tokens.of_file(written("operator ada 0123456789abcdef#0123456789\n#viewer b fedcba9876543210"))
    assert hashed.find("0123456789abcdef") is None  # a part of a token is none
    assert hashed.find("0123456789abcdef#0123456789") is not None
    assert hashed.find("fedcba9876543210") is None
    for text, why in (
        ("", "no token"), ("root ada 0123456789abcdef", "line 1"), ("operator ada short", "too short"),
        ("operator ada", "line 1"), ("viewer a 0123456789abcdef\nviewer b 0123456789abcdef", "again"),
    ):  # fmt: skip
        with pytest.raises(BadSetting, match=why):
            Tokens.of_file(written(text))
    with pytest.raises(BadSetting, match="chmod 600"):
        Tokens.of_file(written("viewer a 0123456789abcdef", 0o644))
    with pytest.raises(BadSetting, match="cannot be read"):
        Tokens.of_file(tmp_path / "none")


def test_another_bind_needs_a_token_file(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--token-file"):
        serve(str(tmp_path / "home"), Serving(host="0.0.0.0", port=0), print)
    assert hosts_of("0.0.0.0", ["a.example"]) == {"a.example"}


def test_two_servers_on_one_port() -> None:
    with bound("127.0.0.1", 0) as first, pytest.raises(BadSetting, match="--port"):  # noqa: SIM117
        with bound("127.0.0.1", first.getsockname()[1]):
            pass
    with pytest.raises(BadSetting, match="cannot listen"), bound("203.0.113.7", 0):
        pass


def test_a_head_that_does_not_come_is_not_waited_for(place: Path, home: Home) -> None:
    from tailrace.console.limits import Limits

    with running(place, limits=Limits(head_seconds=0.3)) as client:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(("127.0.0.1", client.port), timeout=20) as slow:
                slow.sendall(sent)
                assert slow.recv(100) == b""
        assert client.get("topics").status == 200


def test_scripts_in_names_and_errors_stay_text(client: Client, home: Home) -> None:
    evil = "<script>alert(1)</script>"
    for path in (f"topics/{evil.replace('/', '%2F')}", f"topics?{evil.split('/')[0]}=1"):
        answer = client.get(path.replace(" ", "%20"))
        assert answer.headers["Content-Type"] in ("application/problem+json", "application/json")
    page = Client(client.port, None).get(f"/?token={evil}")
    assert evil.encode() not in page.body
