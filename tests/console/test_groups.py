"""Groups over HTTP: reading with stored positions and no membership, lag, reset with a preview."""

from __future__ import annotations

import pytest

from tailrace.home import Home
from tests.console.serving import Client

PATH = "groups/billing/topics/orders"


@pytest.fixture(autouse=True)
def _topic(home: Home) -> None:
    orders = home.create_topic("orders", 2)
    for q in (0, 1):
        with orders.producer() as out:
            for n in range(5):
                out.send(None, b"%d-%d" % (q, n), partition=q)


def test_reading_with_stored_positions(client: Client, home: Home) -> None:
    assert client.get(f"{PATH}/records").status == 404
    assert client.post(PATH, {}).status == 201
    page = client.get(f"{PATH}/records").json
    assert len(page["records"]) == 10
    assert len(client.get(f"{PATH}/records").json["records"]) == 10  # nothing is stored yet
    done = client.post(f"{PATH}/positions", {"positions": {"0": 5, "1": 3}})
    assert done.json["lag"]["records"] == 2
    assert [r["value"] for r in client.get(f"{PATH}/records").json["records"]] == ["1-3", "1-4"]
    assert client.post(f"{PATH}/positions", {"positions": {"0": 5}}).status == 200
    back = client.post(f"{PATH}/positions", {"positions": {"0": 2}})
    assert (back.status, "a reset moves it back" in back.json["detail"]) == (400, True)
    assert client.post(f"{PATH}/positions", {"positions": {"0": 99}}).status == 416
    assert client.post(f"{PATH}/positions", {"positions": {"9": 0}}).status == 404
    with home.topic("orders").consumer("billing", max_seconds=1.0) as consumer:
        assert [r.value for r in consumer] == [b"1-3", b"1-4"]


def test_positions_are_not_stored_under_a_member_that_reads(client: Client, home: Home) -> None:
    orders = home.topic("orders")
    with orders.consumer("billing") as consumer:
        next(iter(consumer))
        refused = client.post(f"{PATH}/positions", {"positions": {"0": 4, "1": 4}})
        assert (refused.status, "has members" in refused.json["detail"]) == (409, True)
        assert client.get(PATH).json["members"][0]["pid"] > 0


def test_a_reset_shows_first_what_it_does(client: Client, home: Home) -> None:
    client.post(PATH, {"from": "latest"})
    shown = client.post(f"{PATH}/reset", {"to": "earliest", "preview": True}).json
    assert shown == {
        "done": False,
        "moves": [{"partition": q, "before": 5, "after": 0, "again": 5, "skipped": 0} for q in (0, 1)],
    }
    assert client.get(PATH).json["lag"]["records"] == 0
    assert client.post(f"{PATH}/reset", {"to": "earliest"}).status == 400
    assert client.post(f"{PATH}/reset", {"to": "earliest", "why": "again"}).json["done"]
    assert client.get(PATH).json["lag"]["records"] == 10
    assert client.post(f"{PATH}/reset", {"to": "77", "why": "x"}).status == 416
    assert client.get("groups?topic=orders").json["groups"][0]["lag"]["records"] == 10
    assert client.ask("DELETE", PATH, {"why": "done"}).status == 204
    assert client.get("groups").json == {"groups": []}


def test_what_cannot_be(client: Client, home: Home) -> None:
    assert client.get("groups/billing/topics/order").status == 404
    assert client.get("groups?topic=order").status == 404
    assert client.post("groups/a%2Fb/topics/orders", {}).status == 400
    home.queue("mails", shards=1)
    assert client.post("groups/queue/topics/mails/positions", {"positions": {"0": 0}}).status == 400
