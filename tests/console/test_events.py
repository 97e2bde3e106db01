"""Event streams over HTTP: expected versions, pages, the Tip, and the feed as a stream."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tailrace.events import Event
from tailrace.home import Home
from tests.console.serving import Client
from tests.console.test_records import next_event


def test_appending_with_an_expected_version(client: Client, home: Home) -> None:
    body = {"events": [{"type": "Added", "json": {"sku": 7}, "id": "e1"}], "expected": 0}
    assert client.post("events/streams/Cart-1", body).json == {"stream": "Cart-1", "version": 1}
    assert client.post("events/streams/Cart-1", body).json["version"] == 1  # the same ids: it has happened
    other = {"events": [{"type": "Added", "id": "e2"}], "expected": 0}
    stale = client.post("events/streams/Cart-1", other)
    assert (stale.status, stale.json["version"], stale.json["stream"]) == (409, 1, "Cart-1")
    (event,) = home.events().stream("Cart-1").read()
    assert (event.type, event.data, event.id) == ("Added", b'{"sku": 7}', "e1")


def test_reading_pages_and_the_tip(client: Client, home: Home) -> None:
    stream = home.events().stream("Cart-1")
    stream.append([Event("A", b"%d" % n, b"m", correlation="c") for n in range(5)], unfolds=[Event("Snap", b"s")])
    page = client.get("events/streams/Cart-1?limit=3").json
    assert ([e["data"] for e in page["events"]], page["next"]) == (["0", "1", "2"], 3)
    assert [e["index"] for e in client.get("events/streams/Cart-1?from=3").json["events"]] == [3, 4]
    newest = client.get("events/streams/Cart-1?backwards=true&limit=1").json["events"]
    assert [(e["index"], e["meta"], e["correlation"]) for e in newest] == [(4, "m", "c")]
    tip = client.get("events/streams/Cart-1/tip").json
    assert (tip["version"], [u["data"] for u in tip["unfolds"]]) == (5, ["s"])


@pytest.mark.parametrize("name", ["Cart-a/b", "Cart-<script>", "Cart-é", "Cart-a b?c#d%"])
def test_names_with_other_characters(client: Client, name: str) -> None:
    path = f"events/streams/{quote(name, safe='')}"
    assert client.post(path, {"events": [{"type": "A"}]}).json == {"stream": name, "version": 1}
    assert client.get(f"{path}/tip").json["version"] == 1
    assert client.get("events/streams").json["streams"] == [name]
    assert client.get("events/categories").json == {"categories": {"Cart": 1}}


def test_the_feed_as_pages_and_as_a_stream(client: Client, home: Home) -> None:
    for n in range(4):
        home.events().stream(f"Cart-{n % 2}").append([Event("A", b"%d" % n)])
    with client.stream("events/feed", Accept="text/event-stream") as stream:
        seen = [next_event(stream) for _ in range(4)]
        assert sorted(json.loads(e["data"])["event"]["data"] for e in seen) == ["0", "1", "2", "3"]
        home.events().stream("Order-1").append([Event("B", b"new")])
        event = next_event(stream)
        assert json.loads(event["data"])["stream"] == "Order-1"
    assert client.get("events/feed?limit=3", Accept="application/x-ndjson").body.count(b"\n") == 3
    assert client.get("events/feed?limit=3", Accept="text/event-stream").body.count(b"data: ") == 3
    assert client.get("events/feed?limit=0", Accept="text/event-stream").status == 400
    first = client.get("events/feed?limit=2").json
    assert len(first["events"]) == 2
    rest = client.get(f"events/feed?from={first['next']}").json
    assert [e["event"]["data"] for e in rest["events"]][-1] == "new"
    assert client.get(f"events/feed?from={rest['next']}").json["events"] == []
    assert len(client.get("events/feed?category=Order").json["events"]) == 1
    home.events().stream("Order-2").append([Event("B", b"later")])
    with client.stream("events/feed", Accept="text/event-stream", Last_Event_ID=event["id"]) as stream:
        assert json.loads(next_event(stream)["data"])["stream"] == "Order-2"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("events/streams/Cart-1", {"events": []}),
        ("events/streams/Cart-1", {"events": [{"type": ""}]}),
        ("events/streams/Cart-1", {"events": [{"type": "A"}], "expected": -1}),
        ("events/streams/nodash", {"events": [{"type": "A"}]}),
        ("events/streams/Cart-1", {"events": [{"tpye": "A"}]}),
        ("events/streams/Cart-1", {"events": [{"type": "A", "id": "x" * 1000}]}),
        ("events/streams/Cart-%00", {"events": [{"type": "A"}]}),
    ],
)
def test_appends_that_cannot_be(client: Client, path: str, body: dict[str, object]) -> None:
    answer = client.post(path, body)
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("query", ["from=-1", "limit=0", "from=x", "to=-1", "from=99999999999999999999"])
def test_places_that_are_none(client: Client, query: str) -> None:
    assert client.get(f"events/streams/Cart-1?{query}").status == 400


def test_checkpoints_that_are_none(client: Client) -> None:
    for given in ("x", "-1", "1,2", "99999999999999999999"):
        assert client.get(f"events/feed?from={given}").status == 400, given
