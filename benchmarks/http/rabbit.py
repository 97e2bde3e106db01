"""RabbitMQ's management API, over which messages can be published and got."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.servers.rabbitmq import rabbitmq

from benchmarks.harness import expect
from benchmarks.http.client import Connection, request

BASIC = "Basic " + base64.b64encode(b"guest:guest").decode()
QUEUE = "/api/queues/%2F/bench"


@dataclass(frozen=True)
class Managed:
    """A broker with a durable queue, by the port of its API."""

    port: int


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Managed]:
    """A broker with the management plugin, and a queue."""
    with rabbitmq(folder / "broker", management=True) as server:
        body = json.dumps({"durable": True, "arguments": {"x-queue-type": "quorum"}}).encode()
        with Connection(server.management) as connection:
            connection.ask(request("PUT", QUEUE, body, BASIC, Content_Type="application/json"))
        yield Managed(server.management)


def publish(value: bytes) -> bytes:
    """A request that publishes one persistent message."""
    message = {
        "properties": {"delivery_mode": 2},
        "routing_key": "bench",
        "payload": base64.b64encode(value).decode(),
        "payload_encoding": "base64",
    }
    body = json.dumps(message).encode()
    return request("POST", "/api/exchanges/%2F/amq.default/publish", body, BASIC, Content_Type="application/json")


def get(server: Managed, count: int) -> int:
    """Take so many messages off the queue; gives how many came."""
    asked = {"count": count, "ackmode": "ack_requeue_false", "encoding": "base64"}
    with Connection(server.port) as connection:
        _, body = connection.ask(
            request("POST", f"{QUEUE}/get", json.dumps(asked).encode(), BASIC, Content_Type="application/json")
        )
    found = len(json.loads(body))
    expect("messages got", found, count)
    return found
