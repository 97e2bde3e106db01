"""What is wrong with a request is said, and nothing is written."""

from __future__ import annotations

import contextlib
import resource
import shutil
import socket
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

import tailrace
from tailrace.console.limits import Limits, allow_descriptors
from tailrace.home import Home
from tailrace.log.format import head as heads
from tests.console.serving import OPERATOR, Client, running

NDJSON, ARROW, EVENTS = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/event-stream"


@pytest.fixture(autouse=True)
def _topic(home: Home) -> None:
    home.create_topic("orders", 2)


def records(home: Home) -> int:
    return len(list(home.topic("orders").records()))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "does not fit"),
        (b'{"records": [{"json": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", ""),
        (b"null", "Expected `object`"),
        (b'{"records": 1}', "$.records"),
        (b'{"records": [{"value": 1}]}', "$.records[0].value"),
        (b'{"records": [{"valeu": "x"}]}', "did you mean 'value'?"),
        (b'{"record": []}', "did you mean 'records'?"),
        (b'{"records": []}', "no record"),
        (b'{"records": [{"value": {"base64": "!"}}]}', "base64"),
        (b'{"records": [{"value": "\\ud800"}]}', ""),
        (b'{"records": [{"value": "x", "json": 1}]}', "not both"),
        (b'{"records": [{"value": "x", "timestamp": -1}]}', "1970"),
        (b'{"records": [{"value": "x", "timestamp": 1e300}]}', "$.records"),
        (b'{"records": [{"value": "x"}], "expected": {"x": 1}}', "expected"),
    ],
)
def test_bodies_that_are_no_records(client: Client, home: Home, body: bytes, said: str) -> None:
    answer = client.post("topics/orders/records", body, Content_Type="application/json")
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert said in answer.json["detail"]
    assert records(home) == 0


@pytest.mark.parametrize(
    ("media", "body", "status"),
    [
        (NDJSON, b'{"value": "a"}\n{"value"', 400),
        (NDJSON, b"\n\n", 400),
        (ARROW, b"no arrow", 400),
        (ARROW, b"", 400),
        ("text/csv", b"a,b", 415),
    ],
)
def test_bodies_of_other_media(client: Client, home: Home, media: str, body: bytes, status: int) -> None:
    assert client.post("topics/orders/records", body, Content_Type=media).status == status
    assert records(home) == 0


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("partition=7", 404, "no partition 7"),
        ("partition=x", 400, "partition"),
        ("form=3", 400, "did you mean 'from'?"),
        ("from=never", 400, "no place"),
        ("from=3", 400, "partition=N"),
        ("from=0:99", 416, "beyond"),
        ("from=0:1,0:2", 400, "twice"),
        ("from=9:0", 404, "partition"),
        ("partition=0&from=99999999999999999999999", 416, "beyond"),
        ("partition=0&from=5", 416, "beyond its end, 0"),
        ("from=2026-01-01", 400, "time zone"),
        ("limit=0", 400, "limit"),
        ("limit=99999999", 400, "limit"),
        ("max_bytes=0", 400, "max_bytes"),
        ("wait=1e9", 400, "wait"),
        ("wait=nan", 400, "wait"),
        ("limit=1&limit=2", 400, "twice"),
    ],
)
def test_places_that_are_none(client: Client, query: str, status: int, said: str) -> None:
    answer = client.get(f"topics/orders/records?{query}")
    assert (answer.status, said in answer.json["detail"]) == (status, True), answer.json


def test_an_offset_below_the_floor_says_the_floor(client: Client, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 1)  # a page for each append
    topic = home.topic("orders")
    for n in range(4):
        topic.append([(b"k", b"%d" % n)])
    topic.configure(retention_bytes=1)
    home.upkeep("orders")
    q = next(q for q, (floor, _) in topic.ends().items() if floor)
    answer = client.get(f"topics/orders/records?partition={q}&from=0")
    assert (answer.status, answer.json["floor"]) == (416, topic.ends()[q][0])


@pytest.mark.parametrize("name", ["a/b", "a\x00b", "a\nb", "..", "é", "x" * 300, "a b", "%"])
def test_names_that_no_topic_can_have(client: Client, name: str) -> None:
    answer = client.get(f"topics/{quote(name, safe='')}")
    assert answer.status == 400
    assert "cannot be a topic's name" in answer.json["detail"]
    assert client.post("topics", {"name": name}).status == 400


def test_what_is_not_there(client: Client) -> None:
    assert "did you mean 'orders'?" in client.get("topics/order").json["detail"]
    assert client.get("nothing/at/all").status == 404
    assert client.get("topics/%ff").status == 400
    wrong = client.ask("PUT", "topics")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, POST")
    assert client.get("topics/orders/records", Accept="image/png").status == 406
    assert client.post("topics", {"name": "orders"}).status == 409
    assert client.get("topics?x=1").status == 400
    assert client.get("topics/orders?x=1").status == 400


def test_bodies_over_the_limit(home: Home, place: Path) -> None:
    with running(place, limits=Limits(body_bytes=1000)) as client:
        big = {"records": [{"value": "x" * 2000}]}
        assert client.post("topics/orders/records", big).status == 413
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as chunked:
            head = f"POST /api/v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}"
            chunked.sendall(f"{head}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            chunked.sendall(b"7d0\r\n" + b"x" * 2000 + b"\r\n")
            assert b" 413 " in chunked.recv(200)
        large = {"records": [{"value": "y" * 500}]}
        home.topic("orders").configure(max_record_bytes=100)
        assert client.post("topics/orders/records", large).json["title"] == "TooLarge"
    assert records(home) == 0


def test_a_body_that_comes_too_slowly(home: Home, place: Path) -> None:
    with running(place, limits=Limits(body_seconds=0.3)) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as slow:
            head = f"POST /api/v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}"
            slow.sendall(f"{head}\r\nContent-Length: 100\r\n\r\n{{".encode())
            assert b" 408 " in slow.recv(200)
        assert client.get("topics").status == 200


def test_a_body_that_is_cut_off_writes_nothing(client: Client, home: Home) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as cut:
        head = f"POST /api/v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}"
        cut.sendall(f"{head}\r\nContent-Type: {NDJSON}\r\nContent-Length: 1000\r\n\r\n".encode() + b'{"value": "a"}\n')
    assert client.get("topics").status == 200
    assert records(home) == 0


def test_too_many_streams(home: Home, place: Path) -> None:
    with running(place, limits=Limits(streams_per_client=2)) as client:
        with client.stream("topics/orders/records", Accept=EVENTS) as first:
            assert first.readline() == b": open\n"
            with client.stream("topics/orders/records", Accept=EVENTS) as second:
                assert second.readline() == b": open\n"
                third = client.get("topics/orders/records", Accept=EVENTS)
                assert (third.status, third.headers["Retry-After"]) == (429, "1")
                assert client.get("topics/orders/records?from=latest&wait=1").status == 429
        done = threading.Event()
        for _ in range(200):  # until the server has noticed that they are gone
            if client.get("topics/orders/records?wait=0.01").status == 200:
                break
            done.wait(0.05)
        else:
            pytest.fail("the streams are still counted")


@pytest.mark.parametrize("path", ["topics/orders/records?from=latest&wait=55", "events/feed?wait=55",
                                  "groups/billing/topics/orders/records?wait=55"])  # fmt: skip
def test_a_long_poll_of_a_client_that_has_gone_counts_no_more(home: Home, place: Path, path: str) -> None:
    with home.topic("orders").consumer("billing", max_seconds=0.1) as consumer:
        list(consumer)
    with running(place, limits=Limits(streams_per_client=1)) as client:
        head = f"GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}\r\n\r\n"
        done = threading.Event()
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as gone:
            gone.sendall(head.encode())
            gone.settimeout(0.05)
            while client.get("topics/orders/records?wait=0.01&from=latest").status != 429:
                with contextlib.suppress(TimeoutError):
                    if gone.recv(4096):  # it was refused, since it came while this client's other request waited
                        gone.sendall(head.encode())
        for _ in range(500):
            if client.get("topics/orders/records?wait=0.01").status == 200:
                return
            done.wait(0.05)
        pytest.fail("the long poll is still counted")


def test_a_limit_that_is_reached_names_its_option(home: Home, place: Path) -> None:
    for limits, option in (
        (Limits(streams_per_client=1), "--max-streams"),
        (Limits(streams=1), "--max-all-streams"),
    ):
        with running(place, limits=limits) as client, client.stream("topics/orders/records", Accept=EVENTS) as first:
            assert first.readline() == b": open\n"
            detail = client.get("topics/orders/records", Accept=EVENTS).json["detail"]
            assert detail.endswith(f"a higher {option}")


def test_a_server_may_open_as_many_files_as_it_has_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
        assert allow_descriptors(soft - 20) == soft - 10
        assert allow_descriptors(soft - 5) == soft - 5 == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if hard != resource.RLIM_INFINITY:
            assert allow_descriptors(hard + 1) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_home_that_disappears_and_comes_back(tmp_path: Path) -> None:
    place, aside = tmp_path / "here", tmp_path / "aside"
    with tailrace.open(place) as home:
        home.create_topic("orders")
    with running(place) as client:
        assert client.post("topics/orders/records", {"records": [{"value": "a"}]}).status == 201
        place.rename(aside)
        gone = client.post("topics/orders/records", {"records": [{"value": "lost"}]})
        assert (gone.status, gone.headers["Retry-After"]) == (503, "1")
        assert client.get("/readyz").status == 503
        assert client.get("/healthz").status == 200
        aside.rename(place)
        assert client.post("topics/orders/records", {"records": [{"value": "b"}]}).status == 201
        copy = tmp_path / "copy"
        shutil.copytree(place, copy)
        shutil.rmtree(place)
        assert client.get("topics").status == 503
        copy.rename(place)
        assert client.get("/readyz").status == 200
        assert client.post("topics/orders/records", {"records": [{"value": "c"}]}).status == 201
    with tailrace.open(place) as home:
        assert [r.value for r in home.topic("orders").records()] == [b"a", b"b", b"c"]


def test_a_damaged_chunk_is_passed_and_named(client: Client, home: Home, place: Path) -> None:
    topic = home.create_topic("large")
    for letter in (b"a", b"b", b"c"):
        topic.append([(None, letter * 300_000), (None, letter)])
    objects = [p for p in (place / "objects").rglob("*") if p.is_file() and p.stat().st_size > 200_000]
    assert len(objects) == 3
    for path in objects:
        data = path.read_bytes()
        if b"b" * 100 in data:
            path.chmod(0o600)
            path.write_bytes(data.replace(b"b" * 100, b"x" * 100, 1))
    page = client.get("topics/large/records")
    assert page.status == 206
    assert [r["value"][0] for r in page.json["records"]] == ["a", "a", "c", "c"]
    assert page.json["lost"] == [{"partition": 0, "first": 2, "end": 4}]
    lines = client.get("topics/large/records", Accept=NDJSON).body.splitlines()
    assert [line[:8] for line in lines].count(b'{"lost":') == 1
    arrow = client.get("topics/large/records", Accept=ARROW)
    assert (arrow.status, arrow.headers["Tailrace-Lost"]) == (206, "0:2-3")
