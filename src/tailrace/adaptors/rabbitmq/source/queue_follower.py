"""The follower of a queue: makes changes of its messages, and acknowledges them once the commit log has them.

    delivered by the broker  →  given to the pipeline, with a position that has its mark  →  stored  →  acknowledged

After a crash the broker delivers again what was stored and not acknowledged.  The follower recognizes such a repeat by
its mark (see seen_ids) if it has a message id.  It acknowledges a repeat only when the position that has its mark is
stored, too: otherwise a crash in between would lose the message.

AMQP notifies a consumer when its queue is deleted, but not when it is purged.  So the follower asks for the queue's
depth every few seconds: if it is the only consumer, the depth can only fall by what was delivered to it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from tailrace.adaptors.contract import Changes
from tailrace.adaptors.formats.decoder import decoder
from tailrace.adaptors.rabbitmq import broker as brokers
from tailrace.adaptors.rabbitmq.broker import Broker
from tailrace.adaptors.rabbitmq.errors import NOT_FOUND, code_of
from tailrace.adaptors.rabbitmq.settings import RabbitSource
from tailrace.adaptors.rabbitmq.source.delivery import Delivery, milliseconds, reading
from tailrace.adaptors.rabbitmq.source.seen_ids import SeenIds, mark_of

_log = logging.getLogger("tailrace")
BEAT_SECONDS = 0.9
"""How long a step waits for a message; then it gives changes without rows."""
HURRY_SECONDS = 0.02
"""How long a step waits while messages are unacknowledged: the broker may deliver no more until they are
acknowledged."""
GATHER_SECONDS = 0.02
"""How long a step gathers more messages after a first one."""
LOOK_SECONDS = 2.0
"""Seconds between two questions for the queue's depth."""
METADATA = "_rabbitmq"
"""The document's field for the message's offset, timestamp and headers, if the settings ask for it."""


class QueueFollower:
    """Follows one queue.  Only one thread may call it."""

    def __init__(self, broker: Broker, settings: RabbitSource, queue: str, stored: Mapping[str, Any] | None) -> None:
        self._broker, self._settings, self._queue = broker, settings, queue
        self._recent = SeenIds(stored, settings.remember)
        self._decoder = decoder(settings, METADATA)
        self._read = reading(settings.key, settings.format)
        self._unacknowledged: deque[tuple[int, int]] = deque()
        """For each delivery how many messages had been taken with it, and the broker's delivery tag."""
        self._connection: Any = None
        self._channel: Any = None
        self._arrived: deque[tuple[Any, Any, bytes]] = deque()
        self._cancelled = self._absent = False
        self._delivered = self._signs = 0
        self._looks: list[tuple[int, int]] = []
        """For the last two looks how many messages were ready, and how many had been delivered to this consumer."""
        self._to_catch_up: int | None = None

    def changes(self) -> Generator[Changes]:
        """The queue's messages as changes, without end; about once a second when nothing comes."""
        try:
            while True:
                if self._connection is None:
                    yield from self._begin()
                yield self._step()
                if self._cancelled:
                    yield from self._gone()
        finally:
            self.close()

    # -- the connection
    def _begin(self) -> Generator[Changes]:
        """Connect and consume.  While the queue does not exist, wait for it, and report that once."""
        while self._broker.depth(self._queue) is None:
            yield from self._missing()
            time.sleep(BEAT_SECONDS)
        if self._absent:
            _log.warning("the queue %s was made again at %s; it is read from its beginning", *self._names)
        self._absent = self._cancelled = False
        self._connection = self._broker.connect()
        with self._broker.guarded(f"consuming {self._queue}", brokers.declare(self._queue)):
            self._channel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=self._settings.prefetch)
            self._channel.add_on_cancel_callback(self._was_cancelled)
            self._look_at()
            self._to_catch_up = self._looks[0][0] if self._looks else 0
            self._channel.basic_consume(self._queue, self._arrive)

    @property
    def _names(self) -> tuple[str, object]:
        return self._queue, self._broker.address

    def _was_cancelled(self, _: Any) -> None:
        self._cancelled = True

    def _arrive(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        self._delivered += 1
        self._arrived.append((method, properties, body))

    # -- messages
    def _step(self) -> Changes:
        """Wait a moment for messages, and give those that came as changes."""
        with self._broker.guarded(f"consuming {self._queue}"):
            self._wait()
            if time.monotonic() >= self._looked + LOOK_SECONDS and not self._cancelled:
                self._look_at()
        messages = [one for one in self._gathered() if one is not None]
        rows = self._decoder.rows(self._queue, messages, 1) if messages else []
        latest = max((one.milliseconds for one in messages), default=0)
        return self._said(rows, latest)

    def _wait(self) -> None:
        """Run the client until a first message has come and others with it, or for a while if none comes."""
        patience = HURRY_SECONDS if self._unacknowledged else BEAT_SECONDS
        deadline = time.monotonic() + patience
        while not self._arrived and not self._cancelled and (left := deadline - time.monotonic()) > 0:
            self._connection.process_data_events(left)
        deadline = time.monotonic() + GATHER_SECONDS
        while len(self._arrived) < self._settings.batch_rows and (left := deadline - time.monotonic()) > 0:
            if not self._arrived or self._cancelled:
                break
            self._connection.process_data_events(left)

    def _gathered(self) -> list[Delivery | None]:
        """The messages of a batch; None in place of a repeat."""
        out: list[Delivery | None] = []
        size = 0
        while self._arrived and len(out) < self._settings.batch_rows and size < self._settings.batch_bytes:
            method, properties, body = self._arrived.popleft()
            size += len(body)
            out.append(self._taken(method, properties, body))
            self._unacknowledged.append((self._recent.taken, method.delivery_tag))
        return out

    def _taken(self, method: Any, properties: Any, body: bytes) -> Delivery | None:
        id, headers = properties.message_id, {_text(name): value for name, value in (properties.headers or {}).items()}
        mark = mark_of(id, body) if id and self._settings.remember else None
        if mark is not None and self._recent.has(mark):
            return None
        return Delivery(
            body, self._recent.take(mark), f"the queue {self._queue}", list(headers.items()),
            milliseconds(headers, properties.timestamp), id, properties.correlation_id, method.routing_key,
            read=self._read,
        )  # fmt: skip

    def _said(self, rows: Sequence[Any], latest: int = 0) -> Changes:
        """Changes with the present position.  Until the follower has caught up no position is given twice: a run that
        only catches up would end there."""
        position, caught_up = self._recent.stored(), self._caught_up()
        if not caught_up:
            self._signs += 1
            position["more"] = self._signs
        return Changes(rows, position, latest, caught_up=caught_up and not rows)

    def _caught_up(self) -> bool:
        """Whether the broker has delivered as many messages as were ready when consuming began, or the queue is now
        empty."""
        if self._arrived or self._to_catch_up is None:
            return False
        return self._delivered >= self._to_catch_up or (bool(self._looks) and self._looks[-1][0] == 0)

    def acknowledge(self, position: Mapping[str, Any]) -> None:
        """Acknowledge to the broker every message that the stored position covers."""
        last = None
        while self._unacknowledged and self._unacknowledged[0][0] <= position["n"]:
            last = self._unacknowledged.popleft()[1]
        if last is not None and self._channel is not None and self._channel.is_open:
            with self._broker.guarded(f"acknowledging messages of {self._queue}"):
                self._channel.basic_ack(last, multiple=True)

    # -- the queue
    def _look_at(self) -> None:
        """Ask how many messages the queue holds, and log a warning if some went that were not delivered here."""
        from pika.exceptions import ChannelClosedByBroker

        self._looked = time.monotonic()
        try:
            method = self._channel.queue_declare(self._queue, passive=True).method
        except ChannelClosedByBroker as error:
            if code_of(error) != NOT_FOUND:
                raise
            self._cancelled = True
            return
        now = (method.message_count, self._delivered)
        if method.consumer_count > 1:
            self._looks = [now]
            return
        if len(self._looks) == 2:
            (earlier, delivered), (later, _) = self._looks
            # Messages that the broker had sent but not delivered at the later look have arrived by now.
            missing = earlier - later - (self._delivered - delivered)
            if missing > 0:
                _log.warning(
                    "%d messages of the queue %s at %s are gone that were not delivered here: it was purged, they have "
                    "expired, or somebody took them", missing, *self._names,
                )  # fmt: skip
        self._looks = [*self._looks[-1:], now]

    def _gone(self) -> Generator[Changes]:
        """Give what has arrived and drop the connection, because the queue was deleted or the broker cancelled this
        consumer."""
        while self._arrived:  # a deleted queue never delivers these again
            yield self._step()
        self._drop()
        self._cancelled = False

    def _missing(self) -> Generator[Changes]:
        if not self._absent:
            self._absent = True
            _log.warning("the queue %s at %s is deleted, and what was in it is lost", *self._names)
            yield Changes([], self._recent.stored(), caught_up=True, ended=[self._queue])
        else:
            yield Changes([], self._recent.stored(), caught_up=True)

    def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._unacknowledged.clear()
        self._looks, self._to_catch_up, self._delivered = [], None, 0
        if connection is not None:
            brokers.close(connection)

    def close(self) -> None:
        """Close the connection, after it has sent the acknowledgements."""
        self._drop()
        self._arrived.clear()


def _text(name: str | bytes) -> str:
    """The name of a header, which the client gives as bytes if it is not UTF-8."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name
