"""The writer: tasks publish their shares, and a batch is finished when the broker has confirmed all of its messages.

RabbitMQ has no place for offsets, and a confirm can be lost on its way.  The pipeline then publishes messages again,
with the same message_id and the same partition and offset in their headers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from tailrace.adaptors.contract import Guarantee, Staged, Who, Writer
from tailrace.adaptors.rabbitmq.broker import Broker, declare
from tailrace.adaptors.rabbitmq.settings import RabbitSink
from tailrace.adaptors.rabbitmq.sink.messages import Messages, Outgoing
from tailrace.adaptors.rabbitmq.sink.publication import Publication
from tailrace.adaptors.sinks.folding import counted
from tailrace.errors import NotReady


class RabbitWriter(Writer):
    """Publishes to one virtual host."""

    guarantee: ClassVar[Guarantee] = "at least once"

    def __init__(self, settings: RabbitSink) -> None:
        self._settings = settings
        self._messages()  # raises for a bad template

    def __repr__(self) -> str:
        return f"RabbitWriter({self._settings!r})"

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._settings)

    def _messages(self) -> Messages:
        return Messages(self._settings)

    def check(self) -> None:
        """Connect, and raise if the settings name one exchange or one queue for all messages that does not exist."""
        messages = self._messages()
        exchange = self._settings.exchange if messages.exchange.is_fixed else ""
        what = f"rabbitmqadmin declare exchange name={exchange} type=topic durable=true"
        with self._broker.channel(f"looking for the exchange {exchange!r}", what) as channel:
            if exchange:
                channel.exchange_declare(exchange, passive=True)
        if (
            not self._settings.exchange
            and messages.routing_key.is_fixed
            and self._broker.depth(self._settings.routing_key) is None
        ):
            queue = self._settings.routing_key
            raise NotReady(f"{self._broker.address} has no queue {queue!r}; {declare(queue)}")

    def try_out(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Make the messages of these rows, which raises what publishing would raise, and publish none."""
        for _ in self._messages().of(rows):
            pass

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Publish a share, and wait until the broker has confirmed all of it."""
        counts: dict[str, int] = {}
        messages = self._messages()
        first, rest = _peeked(messages.of(counted(rows, counts)))
        if first is not None:
            fixed = not (messages.exchange.by_row or messages.routing_key.by_row)
            Publication(self._broker, self._settings, itertools.chain([first], rest), fixed=fixed).run()
        return Staged(sum(counts.values()), None, counts)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, Any]) -> None:
        """Nothing to do: the broker has confirmed all messages while they were staged."""


def _peeked(messages: Iterator[Outgoing]) -> tuple[Outgoing | None, Iterator[Outgoing]]:
    return next(messages, None), messages
