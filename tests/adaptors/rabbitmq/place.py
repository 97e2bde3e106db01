"""Queues and streams of a test: messages by hand, and readers and writers of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import pika

from tailrace.adaptors.rabbitmq.settings import RabbitSink, RabbitSource
from tailrace.adaptors.rabbitmq.sink.writer import RabbitWriter
from tailrace.adaptors.rabbitmq.source.reader import RabbitReader

PATIENCE = 60.0


class Got(NamedTuple):
    """A message as a consumer has it."""

    body: bytes
    properties: Any
    routing_key: str

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers."""
        return self.properties.headers or {}

    @property
    def document(self) -> Any:
        """Its body as JSON."""
        return json.loads(self.body)


class Place:
    """Queues whose names begin with `prefix`, with a client of the test's own."""

    def __init__(self, uri: str, stream_port: int, prefix: str) -> None:
        self.uri, self.stream_port, self.prefix = uri, stream_port, prefix
        self._connection: Any = None
        self._made: list[str] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        for queue in self._made:
            self.channel().queue_delete(queue)
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

    def channel(self) -> Any:
        """A new channel; the connection is made again if it was lost."""
        if self._connection is None or not self._connection.is_open:
            self._connection = pika.BlockingConnection(pika.URLParameters(f"{self.uri}?heartbeat=0"))
        return self._connection.channel()

    # -- queues
    def make(self, name: str, **arguments: Any) -> str:
        """A durable queue, with arguments such as x_queue_type; its whole name."""
        queue = self.prefix + name
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel().queue_declare(queue, durable=True, arguments=given)
        self._made.append(queue)
        return queue

    def delete(self, name: str) -> None:
        """Delete a queue."""
        self.channel().queue_delete(self.prefix + name)

    def purge(self, name: str) -> None:
        """Remove its messages that are ready."""
        self.channel().queue_purge(self.prefix + name)

    def ready(self, name: str) -> int:
        """How many messages wait in a queue, or were given and come again: once nobody holds any."""
        return int(self.channel().queue_declare(self.prefix + name, passive=True).method.message_count)

    def wait(self, enough: Callable[[], bool]) -> None:
        """Until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not enough():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    # -- messages
    def send(self, name: str, bodies: Iterable[Any], **properties: Any) -> None:
        """Publish, as JSON unless they are bytes, with confirms; a property may be a function of the body."""
        channel = self.channel()
        channel.confirm_delivery()
        for body in bodies:
            given = {name: value(body) if callable(value) else value for name, value in properties.items()}
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            channel.basic_publish("", self.prefix + name, data, pika.BasicProperties(delivery_mode=2, **given))
        channel.close()

    def take(self, name: str) -> list[Got]:
        """Take all messages out of a queue."""
        channel, found, wanted = self.channel(), [], self.ready(name)
        channel.basic_qos(prefetch_count=1000)
        while len(found) < wanted:
            for method, properties, body in channel.consume(self.prefix + name, inactivity_timeout=PATIENCE):
                assert method is not None, f"{len(found)} of {wanted}"
                found.append(Got(body, properties, method.routing_key))
                if len(found) == wanted or len(found) % 500 == 0:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                if len(found) == wanted:
                    break
        channel.cancel()
        channel.close()
        return found

    # -- ends
    def reader(self, **settings: Any) -> RabbitReader:
        """A new reader of queues, streams and super streams of the test."""
        kinds = ("queues", "streams", "super_streams")
        given = {name: [self.prefix + one for one in settings.pop(name, ())] for name in kinds} | settings
        return RabbitReader(msgspec.convert({"uri": self.uri, "stream_port": self.stream_port, **given}, RabbitSource))

    def writer(self, **settings: Any) -> RabbitWriter:
        """A new writer to these queues."""
        return RabbitWriter(RabbitSink(**{"uri": self.uri, "routing_key": self.prefix + "{namespace}", **settings}))
