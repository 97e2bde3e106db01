"""Queues over HTTP: push, take, ack, retry, dead letters, the supervisor's verbs; leases that run out."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.home import Home
from tailrace.queue.lending import Lender
from tests.console.serving import OPERATOR, Client


@pytest.fixture(autouse=True)
def _queue(home: Home) -> None:
    home.queue("mails", shards=2, attempts=3, backoff=0.0)


def push(client: Client, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    answer = client.post("queues/mails/messages", {"messages": list(messages)})
    assert answer.status == 201, answer.body
    return list(answer.json["pushed"])


def take(client: Client, **given: Any) -> list[dict[str, Any]]:
    answer = client.post("queues/mails/leases", {"wait": 20, **given})
    assert answer.status == 200, answer.body
    return list(answer.json["leases"])


def until(true: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    pause = threading.Event()
    for _ in range(600):
        if true():
            return
        pause.wait(0.05)
    pytest.fail("it does not become true")


def test_a_message_is_pushed_taken_and_acknowledged(client: Client, home: Home) -> None:
    (pushed,) = push(client, {"json": {"to": "ada", "n": 12345678901234567890}, "key": "ada"})
    (lease,) = take(client)
    assert (lease["shard"], lease["offset"]) == (pushed["shard"], pushed["offset"])
    assert (lease["json"], lease["key"], lease["attempt"]) == ({"to": "ada", "n": 12345678901234567890}, "ada", 1)
    done = client.post(f"queues/mails/leases/{lease['lease']}/ack")
    assert done.json == {"lease": lease["lease"], "outcome": "acked"}
    assert home.queue("mails").stats().acked == 1  # as another process sees it, at once
    assert client.post(f"queues/mails/leases/{lease['lease']}/ack").json["outcome"] == "acked"
    assert client.post("queues/mails/leases", {"wait": 0}).json == {"leases": []}
    story = client.get(f"queues/mails/messages/{pushed['shard']}/{pushed['offset']}").json
    assert (story["state"], story["key"]) == ("acked", "ada")
    assert "ada@127.0.0.1 over HTTP" in story["moments"][0]["what"]


def test_a_python_handler_and_an_http_client_share_a_queue(client: Client, home: Home) -> None:
    push(client, {"json": {"n": 1}})
    got: list[Any] = []
    with home.queue("mails").tail(lambda envelope: got.append(envelope.message)):
        until(lambda: bool(got))
    assert got == [{"n": 1}]
    home.queue("mails").push(b"\xff\x00")
    (lease,) = take(client)
    assert base64.b64decode(lease["value"]["base64"]) == b"\xff\x00"


def test_a_message_of_another_codec_spoils_no_answer(client: Client, home: Home) -> None:
    class Marks:
        def encode(self, message: Any) -> bytes:
            return b"<%d>" % message if message < 9 else b"\xff"

        def decode(self, data: bytes) -> Any:
            return int(data[1:-1])

    home.queue("mails", codec=Marks()).push_many([1, 9])
    push(client, {"json": {"n": 1}})
    leases: list[dict[str, Any]] = []
    until(lambda: bool(leases.extend(take(client, most=3)) or len(leases) == 3))
    assert sorted(str(one.get("value", one.get("json"))) for one in leases) == ["<1>", "{'base64': '/w=='}", "{'n': 1}"]


def test_one_key_comes_one_at_a_time_and_in_order(client: Client) -> None:
    push(client, *({"value": str(n), "key": "k"} for n in range(3)))
    seen = []
    for _ in range(3):
        (lease,) = take(client, most=10)
        assert client.post("queues/mails/leases", {"wait": 0, "most": 10}).json["leases"] == []
        seen.append(lease["value"])
        assert client.post("queues/mails/acks", {"leases": [lease["lease"]]}).json["acked"] == [lease["lease"]]
    assert seen == ["0", "1", "2"]


def test_a_take_waits_for_a_push(client: Client, home: Home) -> None:
    take(client, wait=0)
    threading.Timer(0.3, lambda: home.queue("mails").push("late")).start()
    assert [lease["json"] for lease in take(client, wait=20)] == ["late"]


def test_a_lease_that_runs_out_is_handed_out_again(client: Client, home: Home) -> None:
    push(client, {"value": "a"})
    (first,) = take(client, seconds=0.2)
    (second,) = take(client, seconds=60)
    assert (second["value"], second["attempt"]) == ("a", 2)
    late = client.post(f"queues/mails/leases/{first['lease']}/ack")
    assert (late.status, late.json["title"]) == (409, "Fenced")
    assert home.queue("mails").stats().acked == 0
    longer = client.post(f"queues/mails/leases/{second['lease']}/extend", {"seconds": 600}).json
    assert longer["seconds"] == 600
    assert client.post(f"queues/mails/leases/{second['lease']}/ack").status == 200
    assert client.post(f"queues/mails/leases/{second['lease']}/retry", {}).status == 409
    assert client.post(f"queues/mails/leases/{second['lease']}/extend", {}).status == 409
    assert client.post("queues/mails/leases/never/ack").status == 409


def test_a_client_that_has_gone_gets_nothing(client: Client, home: Home) -> None:
    body = b'{"wait": 30, "seconds": 600}'
    head = f"POST /api/v1/queues/mails/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}"
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as gone:
        gone.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        until(lambda: len(home.queue("mails").stats().consumers) == 1)
    push(client, {"value": "a"})
    (lease,) = take(client)
    assert (lease["value"], lease["attempt"]) == ("a", 1)


def test_retries_end_with_the_dead_letters_and_go_back_with_their_key(client: Client, home: Home) -> None:
    push(client, {"json": [1], "key": "k"})
    for attempt in (1, 2, 3):
        (lease,) = take(client)
        assert lease["attempt"] == attempt
        order = {"after": 0, "reason": f"no {attempt}"}
        assert client.post(f"queues/mails/leases/{lease['lease']}/retry", order).json["outcome"] == "retried"
    until(lambda: bool(client.get("queues/mails/dead").json["dead"]))
    (letter,) = client.get("queues/mails/dead").json["dead"]
    assert (letter["reason"], letter["key"], letter["value"], letter["json"]) == ("no 3", "k", "[1]", True)
    assert client.post("queues/mails/requeue", {"why": "mended"}).status == 400
    back = client.post("queues/mails/requeue", {"why": "mended", "numbers": [letter["number"]]})
    assert back.json == {"did": "requeue", "messages": 1}
    (lease,) = take(client)
    assert (lease["json"], lease["key"], lease["attempt"]) == ([1], "k", 1)
    client.post(f"queues/mails/leases/{lease['lease']}/dead", {"reason": "never"})
    assert [d["reason"] for d in client.get("queues/mails/dead?after=0").json["dead"]] == ["never"]


def test_a_dedup_id_and_a_delay(client: Client) -> None:
    first, again = (push(client, {"value": "a", "dedup": "x"})[0] for _ in range(2))
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    (later,) = push(client, {"value": "b", "delay": 3600})
    assert (later["delayed"], later["shard"]) == (True, None)
    assert client.get("queues/mails").json["counts"]["delayed"] == 1


def test_the_supervisors_verbs(client: Client, home: Home) -> None:
    push(client, {"value": "a"}, {"value": "b"})
    assert client.post("queues/mails/pause", {"why": " "}).status == 400
    assert client.post("queues/mails/pause", {"why": "look"}).status == 200
    assert home.queue("mails").stats().paused
    assert client.post("queues/mails/play", {"why": "go on"}).status == 200
    assert client.post("queues/mails/purge", {"why": "test"}).json == {"did": "purge", "messages": 2}
    assert client.post("queues/mails/replay", {"from": "earliest", "why": "again"}).json["messages"] == 2
    (queue,) = client.get("queues").json["queues"]
    assert (queue["name"], queue["shards"], queue["counts"]["purged"]) == ("mails", 2, 2)
    did = [(a["what"], a["why"], a["about"]["queue"]) for a in client.get("home/actions").json["actions"]]
    assert did == [
        ("pause queue", "look", "mails"), ("play queue", "go on", "mails"), ("purge queue", "test", "mails"),
        ("replay queue", "again", "mails"),
    ]  # fmt: skip


def test_a_queue_is_rebalanced_changed_and_deleted(client: Client, home: Home) -> None:
    push(client, {"value": "a"})
    assert client.post("queues/mails/rebalance", {"why": ""}).status == 400
    assert client.post("queues/mails/rebalance", {"why": "few", "shards": 1}).status == 400
    assert client.post("queues/mails/rebalance", {"why": "many", "shards": 10_000}).status == 400
    assert client.post("queues/mails/rebalance", {"why": "more", "shards": 5}).json == {"shards": 5, "consumers": {}}
    assert len(client.get("queues/mails").json["shards"]) == 5
    near = client.ask("PATCH", "queues/mails", {"settings": {"attemps": 7}})
    assert (near.status, "did you mean 'attempts'?" in near.json["detail"]) == (400, True)
    assert client.ask("PATCH", "queues/mails", {"settings": {}}).status == 400
    changed = client.ask("PATCH", "queues/mails", {"settings": {"attempts": 7}, "why": "slow days"})
    assert changed.json["settings"]["attempts"] == home.queue("mails").settings.attempts == 7
    assert client.ask("DELETE", "queues/mails", {"why": " "}).status == 400
    assert home.queues() == ["mails"]
    assert client.ask("DELETE", "queues/mails", {"why": "replaced"}).status == 204
    assert client.get("queues/mails").status == 404
    did = [(a["what"], a["why"], bool(a["refused"])) for a in client.get("home/actions").json["actions"]]
    assert did == [
        ("rebalance queue", "few", True), ("rebalance queue", "many", True), ("rebalance queue", "more", False),
        ("change queue", "slow days", False), ("delete queue", "replaced", False),
    ]  # fmt: skip


def test_making_a_queue_and_one_that_is_not_there(client: Client, home: Home) -> None:
    made = client.post("queues", {"name": "jobs", "shards": 3, "settings": {"attempts": 7}})
    assert (made.status, made.json["settings"]["attempts"], len(made.json["shards"])) == (201, 7, 3)
    assert client.post("queues", {"name": "jobs"}).status == 409
    for path, body in (("messages", {"messages": [{"value": "x"}]}), ("leases", {}), ("leases/x/ack", None)):
        answer = client.post(f"queues/mail/{path}", body)
        assert answer.status == 404
        assert "did you mean 'mails'?" in answer.json["detail"]
    assert home.queues() == ["jobs", "mails"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": [{}]}),
        ("messages", {"messages": [{"json": 1, "value": "x"}]}),
        ("messages", {"messages": [{"value": "x", "delay": -1}]}),
        ("messages", {"messages": [{"value": "x", "delay": 1e300}]}),
        ("messages", {"messages": [{"value": "x", "keys": "k"}]}),
        ("leases", {"most": 0}),
        ("leases", {"most": 10**9}),
        ("leases", {"seconds": 0}),
        ("leases", {"wait": -1}),
        ("leases/x/retry", {"after": -1}),
        ("replay", {"from": "latest", "why": "x"}),
    ],
)
def test_orders_that_cannot_be(client: Client, path: str, body: dict[str, Any]) -> None:
    assert client.post(f"queues/mails/{path}", body).status == 400


def test_a_lender_that_is_not_asked_leaves_its_shards(home: Home) -> None:
    queue = home.queue("mails")
    queue.push("a")
    lender = Lender(queue, idle_seconds=0.2)
    until(lambda: not lender.running)
    assert queue.stats().running == 0
    assert not queue.stats().consumers


def test_a_lender_that_is_shut_down_writes_what_was_acknowledged(home: Home) -> None:
    queue = home.queue("mails")
    queue.push("a")
    queue.push("b")
    lender = Lender(queue)
    taken: list[Any] = []
    until(lambda: bool(taken.extend(lender.take(2, 60)) or len(taken) == 2))
    lender.ack(taken[0].id)
    lender.shutdown(1.0)
    assert queue.stats().acked == 1
    assert lender.settled(taken[0].id) == "acked"
    assert queue.stats().backlog == 1
