"""The webhook sink against a real receiver on loopback, which cuts, delays, refuses and answers twice."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import ssl
import subprocess
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.http.settings import HttpSink
from tailrace.adaptors.http.sink import endpoint
from tailrace.adaptors.http.sink.endpoint import Endpoint
from tailrace.adaptors.http.sink.writer import HttpWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadSetting, NotReady, Rejected, Throttled, TimedOut, Unavailable
from tailrace.log.record import Mode, Op
from tailrace.testing.readercontract import Document
from tailrace.testing.writercontract import WriterContract
from tests.adaptors.http.receiver import TAKEN, Answer, Receiver, Request, receiving
from tests.servers.process import HOST, free_ports

WHO = Who("shop", "hook", 1)


class Hook:
    """A receiver that a contract test writes."""

    namespace = "documents"

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def writer(self) -> HttpWriter:
        return writer(self._receiver, batch_rows=1000)

    def documents(self) -> list[Document]:
        return [message["data"] for message in self._receiver.messages()]


class TestHttpWriter(WriterContract):
    upserts = deletes = False

    @pytest.fixture
    def sink(self) -> Any:
        with receiving() as receiver:
            yield Hook(receiver)


def writer(receiver: Receiver, **settings: Any) -> HttpWriter:
    return HttpWriter(HttpSink(**{"url": receiver.url + "/hook", **settings}))


def rows(ids: list[int], first: int = 0, partition: int = 3, **how: Any) -> pa.RecordBatch:
    columns = pa.RecordBatch.from_pydict({"id": ids, "n": list(range(first, first + len(ids)))})
    made = make_rows("shop.orders", columns, ["id"], **{"mode": Mode.SYNC, "timestamp": 5, **how})
    return placed(made, partition, pa.array(range(first, first + len(ids)), pa.int64()))


def send(receiver: Receiver, batch: pa.RecordBatch, **settings: Any) -> None:
    with contextlib.closing(writer(receiver, **settings)) as sink:
        sink.finish([sink.stage([batch])], WHO, {"0": 1})


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)


# -- what is sent
def test_a_message(tmp_path: Path) -> None:
    with receiving() as receiver:
        send(receiver, rows([7], 17, op=Op.UPDATE))
        columns = pa.RecordBatch.from_pydict({"id": [7], "n": [1]})
        change = make_rows(
            "shop.orders", columns, ["id"], op=Op.UPDATE, mode=Mode.SYNC, whole=pa.array([False]),
            removed=pa.array([["/old"]], pa.list_(pa.string())), unset=pa.array([b"\x02"], pa.binary()),
        )  # fmt: skip
        send(receiver, placed(change, 3, pa.array([18], pa.int64())))
        first, second = receiver.requests
    told = {"namespace": "shop.orders", "id": "7", "mode": "sync", "op": "update"}
    assert first.messages == [{**told, "key": "shop.orders/3-17", "timestamp": 5, "data": {"id": 7, "n": 17}}]
    assert second.messages == [
        {**told, "key": "shop.orders/3-18", "timestamp": 0, "data": {"id": 7}, "whole": False, "removed": ["/old"]}
    ]
    assert first.headers["idempotency-key"] == first.headers["webhook-id"] == "shop/hook/shop.orders/3-17"
    assert first.headers["content-type"] == "application/json"
    assert "webhook-signature" not in first.headers


def test_batches_and_paths() -> None:
    with receiving() as receiver:
        send(receiver, rows(list(range(25))), url=f"{receiver.url}/hooks/{{namespace}}", batch_rows=10, requests=1)
        sizes = [len(request.messages) for request in receiver.requests]
        keys = [request.headers["idempotency-key"] for request in receiver.requests]
        assert {request.path for request in receiver.requests} == {"/hooks/shop.orders"}
        send(receiver, rows(list(range(25))), url=f"{receiver.url}/hooks/{{namespace}}", batch_rows=10, requests=1)
        assert [request.headers["idempotency-key"] for request in receiver.requests] == keys * 2
        send(receiver, rows(list(range(25))), batch_rows=1000, batch_bytes=1024, requests=1)
        assert len(receiver.requests) > 8
    assert sizes == [10, 10, 5]
    assert len(set(keys)) == 3


@pytest.mark.parametrize("secret", ["text", "whsec_" + base64.b64encode(b"raw bytes").decode(), "new old"])
def test_signatures(secret: str) -> None:
    """Verified by hand, as Standard Webhooks says it."""
    with receiving() as receiver:
        send(receiver, rows([1]), secret=secret)
        (request,) = receiver.requests
    headers = request.headers
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    keys = [base64.b64decode(one[6:]) if one.startswith("whsec_") else one.encode() for one in secret.split()]
    made = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys]
    assert headers["webhook-signature"] == " ".join(f"v1,{one}" for one in made)
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300


def test_secrets_are_never_shown() -> None:
    with receiving(lambda n, r: Answer(500, body=r.headers["authorization"].encode())) as receiver:
        sink = writer(
            receiver, url=receiver.url + "/token-1", secret="token-2", authorization="Bearer token-3",
            headers={"x": "token-4"}, patience=0.0,
        )  # fmt: skip
        with contextlib.closing(sink), pytest.raises(Throttled) as raised:
            sink.finish([sink.stage([rows([1])])], WHO, {"0": 1})
        assert "token" not in repr(sink) + str(raised.value) + repr(raised.value)
        assert receiver.requests[0].headers["authorization"] == "Bearer token-3"
        assert receiver.requests[0].headers["x"] == "token-4"
        with pytest.raises(BadSetting, match="header of HTTP") as wrong:
            send(receiver, rows([1]), authorization="token-3\nx: y")
        assert "token" not in str(wrong.value)
    with pytest.raises(BadSetting) as refused:
        Endpoint(HttpSink(url="https://user:token@example.com"))
    assert "token" not in str(refused.value)


# -- in order, several at a time
def test_order_of_each_document_while_several_are_sent() -> None:
    """Slow answers and failures in the middle; what a receiver sees of one document is in order."""
    ids = [n * 7 % 13 for n in range(300)]
    together = threading.Barrier(4)

    def behaviour(n: int, request: Request) -> Answer:
        if n < 4:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(30)
        return Answer(503) if n % 11 == 5 else Answer(cut=True) if n % 17 == 3 else TAKEN

    with receiving(behaviour) as receiver:
        send(receiver, rows(ids), requests=4)
        seen = list(receiver.once().values())
        assert receiver.most_at_once == 4
    for id in set(ids):
        numbers = [message["data"]["n"] for message in seen if message["data"]["id"] == id]
        assert numbers == [n for n, one in enumerate(ids) if one == id]


# -- retries
def test_a_cut_connection_is_a_repeat_under_the_same_key() -> None:
    """The receiver takes it, and the answer is lost: it comes twice, and the keys say so."""
    with receiving(lambda n, r: Answer(cut=n == 0)) as receiver:
        send(receiver, rows([1]))
        first, second = receiver.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body


@pytest.mark.parametrize("answer", [Answer(200, body=b"half", halfway=True), Answer(200, body=b"x" * 300_000)])
def test_an_answer_that_is_cut_or_long_is_an_answer(answer: Answer) -> None:
    with receiving(lambda n, r: answer) as receiver:
        send(receiver, rows([1, 2]), requests=1)
        assert len(receiver.requests) == 2


@pytest.mark.parametrize("dated", [False, True])
def test_retry_after_is_obeyed(dated: bool) -> None:
    slept: list[float] = []
    text = formatdate(time.time() + 3600, usegmt=True) if dated else "7"
    with receiving(lambda n, r: Answer(429, {"retry-after": text}) if n == 0 else TAKEN) as receiver:
        there = Endpoint(HttpSink(url=receiver.url, patience=10_000), sleep=slept.append)
        there.post("a", "1", "k", b"{}", lambda: False)
        there.close()
        assert len(receiver.requests) == 2
    assert 3000 < slept[0] <= 3600 if dated else slept[0] == 7


def test_retry_after_a_date_without_sense_is_passed_over() -> None:
    for text in ("soon", "1e300", "-5", "", "Wed, 99 Foo 2026 00:00:00 GMT", "nan"):
        slept: list[float] = []
        with receiving(lambda n, r, text=text: Answer(503, {"retry-after": text}) if n == 0 else TAKEN) as receiver:
            there = Endpoint(HttpSink(url=receiver.url), sleep=slept.append)
            there.post("a", "1", "k", b"{}", lambda: False)
            there.close()
        assert 0 <= slept[0] < 1


def test_pauses_grow_and_patience_ends() -> None:
    slept: list[float] = []
    with receiving(lambda n, r: Answer(500, body=b"broken\nhere") if n < 6 else TAKEN) as receiver:
        there = Endpoint(HttpSink(url=receiver.url), sleep=slept.append)
        there.post("a", "1", "k", b"{}", lambda: False)
        there.close()
        assert slept[-1] > 4 * slept[0]
    with receiving(lambda n, r: Answer(500, body=b"broken\nhere")) as receiver, pytest.raises(Throttled) as raised:
        send(receiver, rows([1]), patience=0.0)
    assert str(raised.value) == f"{receiver.url} answers 500: broken here"


def test_what_was_taken_is_not_sent_again_by_the_same_process() -> None:
    broken = [True]
    with (
        receiving(lambda n, r: Answer(503) if broken[0] and n >= 5 else TAKEN) as receiver,
        contextlib.closing(writer(receiver, requests=1, patience=0.0)) as sink,
    ):
        staged = [sink.stage([rows(list(range(10)))])]
        with pytest.raises(Throttled):
            sink.finish(staged, WHO, {"0": 10})
        broken[0] = False
        sink.finish(staged, WHO, {"0": 10})
        assert [message["data"]["id"] for message in receiver.messages()] == list(range(10))
        sink.finish(staged, WHO, {"0": 10})  # an operator has set the mark back
        assert len(receiver.messages()) == 20


@pytest.mark.parametrize("namespaces", [("shop.orders",) * 2, ("shop.orders", "shop.audit")])
def test_several_messages_that_a_function_makes_of_one_are_told_apart(namespaces: tuple[str, str]) -> None:
    """The endpoint fails after the first of them: the second is still posted, and is no repeat to a receiver."""
    batches = [
        placed(make_rows(name, pa.record_batch({"id": [id]}), ["id"]), 3, pa.array([17], pa.int64()))
        for id, name in enumerate(namespaces)
    ]
    with (
        receiving(lambda n, r: Answer(500) if n == 1 else TAKEN) as receiver,
        contextlib.closing(writer(receiver, requests=1, patience=0.0)) as sink,
    ):
        staged = [sink.stage(batches)]
        with pytest.raises(Throttled):
            sink.finish(staged, WHO, {"0": 1})
        sink.finish(staged, WHO, {"0": 1})
        assert [message["data"]["id"] for message in receiver.messages()] == [0, 1]
        assert len(receiver.once()) == 2
        first, _, second = receiver.requests
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


# -- what is refused, and what is wrong
@pytest.mark.parametrize("status", [400, 409, 410, 413, 422])
def test_a_message_that_is_refused(status: int) -> None:
    def behaviour(n: int, request: Request) -> Answer:
        bad = any(message["data"]["id"] == 2 for message in request.messages)
        return Answer(status, body=b"no such thing") if bad else TAKEN

    with receiving(behaviour) as receiver:
        with pytest.raises(Rejected, match=f"answers {status}: no such thing; it refuses '2'") as refused:
            send(receiver, rows([1, 2, 3]), requests=1)
        assert (refused.value.namespace, refused.value.id) == ("shop.orders", "2")
        with pytest.raises(Rejected, match="one of several"):
            send(receiver, rows([1, 2, 3]), batch_rows=10, requests=1)


@pytest.mark.parametrize("status", [301, 302, 401, 403, 404, 405, 407])
def test_what_is_wrong_with_the_endpoint_is_no_message_s_fault(status: int) -> None:
    with receiving(lambda n, r: Answer(status, {"location": "http://example.invalid/"})) as receiver:
        with pytest.raises(NotReady, match=rf"answers {status}.*url"):
            send(receiver, rows([1]))
        assert len(receiver.requests) == 1
        if status == 404:
            with pytest.raises(Rejected):
                send(receiver, rows([1]), setup=(401,))


def test_wrong_places() -> None:
    (port,) = free_ports(1)
    for url, kind, why in (
        (f"http://{HOST}:{port}", Unavailable, "is the receiver running there"),
        ("http://no-such-host.invalid/", Unavailable, "no such host"),
        ("ftp://example.com", BadSetting, "https://host/path"),
        ("http://[::1/", BadSetting, "https://host/path"),
        ("http://h:99999/", BadSetting, "https://host/path"),
    ):
        with pytest.raises(kind, match=why) as raised:
            HttpWriter(HttpSink(url=url)).check()
        assert "\n" not in str(raised.value)
    with pytest.raises(BadSetting, match="not base64"):
        HttpWriter(HttpSink(url="http://h/", secret="whsec_%")).check()
    with receiving() as receiver:
        with contextlib.closing(writer(receiver)) as sink:
            sink.check()
        assert receiver.requests == []
        with pytest.raises(NotReady, match="speaks http, not https"):
            HttpWriter(HttpSink(url=receiver.url.replace("http:", "https:"))).check()


def test_a_receiver_that_does_not_answer() -> None:
    ended = threading.Event()

    def behaviour(n: int, request: Request) -> Answer:
        ended.wait(60)
        return TAKEN

    with receiving(behaviour) as receiver:
        try:
            with pytest.raises(TimedOut, match=r"no answer within 0\.2 s"):
                send(receiver, rows([1]), timeout=0.2, patience=0.0)
        finally:
            ended.set()


def test_certificates(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{HOST}"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiving(context=context) as receiver:
        for trusted in (False, True):
            sink = writer(receiver, **({"ca": str(certificate)} if trusted else {}))
            with contextlib.closing(sink):
                if trusted:
                    sink.check()
                    sink.finish([sink.stage([rows([1])])], WHO, {"0": 1})
                    continue
                with pytest.raises(NotReady, match=r"not trusted.*ca = "):
                    sink.check()
                with pytest.raises(NotReady, match=r"not trusted.*ca = "):
                    sink.finish([sink.stage([rows([1])])], WHO, {"0": 1})
        assert len(receiver.messages()) == 1
        with (
            contextlib.closing(writer(receiver, ca=str(key))) as sink,
            pytest.raises(NotReady, match="as certificates"),
        ):
            sink.check()


def test_bodies_are_json_whatever_is_in_them() -> None:
    columns = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([b"\xff"], pa.binary()),
            "j": pa.array(['{"a":\n 1}'], pa.json_()),
            "f": [float("nan")],
            "text": ["é\x00\u2028"],
        }
    )
    with receiving() as receiver:
        send(receiver, make_rows("a/b", columns, ["id"]), url=receiver.url + "/{namespace}")
        (request,) = receiver.requests
    (message,) = [json.loads(request.body)]
    assert request.path == "/a%2Fb"
    assert message["data"] == {"id": "/w==", "j": {"a": 1}, "f": "NaN", "text": "é\x00\u2028"}
    assert message["id"] == "\ufffd"
    assert request.headers["idempotency-key"].startswith("shop/hook/")
