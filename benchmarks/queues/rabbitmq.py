"""RabbitMQ through py-amqp, the client that Celery uses: a quorum queue with confirms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import amqp
from tests.servers.rabbitmq import rabbitmq

from benchmarks.contract import Place
from benchmarks.queues.contract import Got

NAME = "bench"


class RabbitMQ:
    """Publishing waits for the broker's confirms; consuming has two batches on their way and acknowledges in bulk."""

    def __init__(self, address: str) -> None:
        self.connection = amqp.Connection(address, userid="guest", password="guest")
        self.connection.connect()
        self.channel = self.connection.channel()
        self.channel.queue_declare(NAME, durable=True, auto_delete=False, arguments={"x-queue-type": "quorum"})
        self.channel.confirm_select()
        self.channel.events["basic_ack"].add(self._confirmed)
        self.sent = 0
        self.confirmed: set[int] = set()
        self.below = 0

    def _confirmed(self, tag: int, multiple: bool) -> None:
        if multiple:
            self.below = max(self.below, tag)
        else:
            self.confirmed.add(tag)
        while self.below + 1 in self.confirmed:
            self.below += 1
            self.confirmed.discard(self.below)

    def push(self, message: bytes) -> None:
        """A publish, and its confirm."""
        self.push_many([message])

    def push_many(self, messages: Sequence[bytes]) -> None:
        """All published, then all confirms waited for."""
        for message in messages:
            self.channel.basic_publish(amqp.Message(message, delivery_mode=2), routing_key=NAME)
            self.sent += 1
        while self.below < self.sent:
            self.connection.drain_events(timeout=30)

    def take(self, batch: int, got: Got) -> None:
        """Deliveries that the broker pushes, acknowledged up to the last of each batch."""
        waiting: list[Any] = []
        self.channel.basic_qos(0, 2 * batch, False)
        tag = self.channel.basic_consume(NAME, callback=waiting.append)
        over = False
        while not over:
            with contextlib.suppress(TimeoutError):
                while len(waiting) < batch:
                    self.connection.drain_events(timeout=0.01 if waiting else 0.05)
            some, waiting[:batch] = waiting[:batch], []
            over = got([bytes(message.body) for message in some])
            if some:
                self.channel.basic_ack(some[-1].delivery_tag, multiple=True)
        self.channel.basic_cancel(tag)  # an answer to this shows that the acknowledgements before have arrived


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Place]:
    """A broker."""
    with rabbitmq(folder) as server:
        yield Place(server.url, server.pid)


@contextlib.contextmanager
def connect(address: str) -> Iterator[RabbitMQ]:
    """A client of the broker there."""
    queue = RabbitMQ(address)
    try:
        yield queue
    finally:
        queue.connection.close()
