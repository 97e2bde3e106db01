"""A publication: sends messages in order, and fails unless the broker routes and confirms every one.

pika's blocking connection waits for the confirm of each message before it sends the next, and a queue fsyncs before
each confirm.  A publication instead keeps up to a window of messages unconfirmed.  All of it runs in the caller's
thread, in the callbacks of the connection's own loop.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tailrace.adaptors.rabbitmq.broker import Broker
from tailrace.adaptors.rabbitmq.errors import NOT_FOUND, PRECONDITION, code_of, failed
from tailrace.adaptors.rabbitmq.settings import RabbitSink
from tailrace.adaptors.rabbitmq.sink.messages import Outgoing
from tailrace.errors import NotReady, Rejected, TailraceError, Unavailable

WINDOW_BYTES = 32 * 1024 * 1024
"""The most bytes of unconfirmed messages; a single message may be larger."""
CONFIRM_SECONDS = 60.0
"""How long the broker may confirm nothing before the publication fails, without the time that functions take."""
CLOSE_SECONDS = 5.0
WATCH_SECONDS = 0.5
SEND_SECONDS = 0.5
"""After how long the loop reads again what the broker has sent: messages come from functions, which may be slow."""
_SIZE = re.compile(r"message size (\d+)")


class Publication:
    """Publishes messages once.  `fixed` says whether all messages of a namespace have the same exchange and routing
    key:  if not, a message without a queue is `Rejected` alone."""

    def __init__(self, broker: Broker, settings: RabbitSink, messages: Iterator[Outgoing], *, fixed: bool) -> None:
        self._broker, self._settings, self._messages, self._fixed = broker, settings, messages, fixed
        self._waiting: dict[int, Outgoing] = {}
        self._size, self._tag = 0, 0
        self._channel: Any = None
        self._all_sent = self._over = self._goes_on = False
        self._blocked: str | None = None
        self._since = time.monotonic()
        self._unroutable: tuple[Outgoing, str] | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Publish all messages.  Returns when the broker has confirmed every one; raises if it has not taken one."""
        import pika

        self._connection = pika.SelectConnection(
            self._broker.parameters(),
            on_open_callback=self._opened,
            on_open_error_callback=self._lost,
            on_close_callback=self._lost,
        )
        loop = self._connection.ioloop
        try:
            loop.start()
        finally:
            with contextlib.suppress(OSError):
                loop.close()
        if self._error is not None:
            raise self._error

    # -- the connection
    def _opened(self, connection: Any) -> None:
        connection.add_on_connection_blocked_callback(self._was_blocked)
        connection.add_on_connection_unblocked_callback(self._was_unblocked)
        connection.channel(on_open_callback=self._ready)
        connection.ioloop.call_later(WATCH_SECONDS, self._watch)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._go_on())

    def _lost(self, _: Any, error: BaseException | str) -> None:
        """Stop the loop, because the connection has ended or could not be made."""
        if not self._over:
            given = error if isinstance(error, BaseException) else ConnectionError(error)
            self._over, self._error = True, failed(given, self._broker.address, "publishing")
        self._connection.ioloop.call_later(0, self._connection.ioloop.stop)  # the client closes its socket before

    def _channel_closed(self, _: Any, error: BaseException) -> None:
        if not self._over:
            self._end(self._refused(error))

    def _end(self, error: BaseException | None = None) -> None:
        """Begin to close the connection.  The loop stops once the broker has answered, or after a while without."""
        self._over, self._error = True, error
        if self._connection.is_open:
            self._connection.close()
            # A broker that blocks publishers does not read from them, and so never answers.
            self._connection.ioloop.call_later(CLOSE_SECONDS if self._blocked is None else 0, self._abort)
        else:
            self._connection.ioloop.stop()

    def _abort(self) -> None:
        """Drop a connection whose close the broker has not answered; the client then calls `_lost`."""
        transport = self._connection._transport
        if transport is not None:
            transport.abort()

    # -- messages
    def _go_on(self) -> None:
        """Have the loop send more, once it has read what has come."""
        if not self._goes_on:
            self._goes_on = True
            self._connection.ioloop.call_later(0, self._send)

    def _send(self) -> None:
        """Send messages for a while, up to as many as the window has room for.  End the publication once all are
        confirmed."""
        import pika

        self._goes_on, begun = False, time.monotonic()
        try:
            while not self._all_sent and not self._over and self._has_room():
                if time.monotonic() - begun > SEND_SECONDS:
                    self._go_on()
                    break
                message = next(self._messages, None)
                if message is None:
                    self._all_sent = True
                    break
                self._tag += 1
                self._waiting[self._tag] = message
                self._size += len(message.body)
                properties = pika.BasicProperties(
                    content_type="application/json" if message.json else None,
                    headers=message.headers,
                    delivery_mode=2 if self._settings.persistent else 1,
                    message_id=message.message_id,
                    timestamp=message.timestamp // 1000 if message.timestamp > 0 else None,
                    app_id=self._settings.name,
                )
                self._channel.basic_publish(
                    message.exchange, message.routing_key, message.body, properties, mandatory=True
                )
        except Exception as error:  # the iterator of messages runs functions and encodes rows: anything may come
            self._end(error)
        self._since += time.monotonic() - begun
        if self._all_sent and not self._waiting and not self._over:
            self._end()

    def _has_room(self) -> bool:
        if self._blocked is not None or not self._waiting:
            return not self._waiting and self._blocked is None
        return len(self._waiting) < self._settings.window and self._size < WINDOW_BYTES

    def _confirmed(self, frame: Any) -> None:
        """The broker has confirmed messages, or has refused them."""
        method, self._since = frame.method, time.monotonic()
        tags = (
            [tag for tag in self._waiting if tag <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        )
        taken = [self._waiting.pop(tag) for tag in tags if tag in self._waiting]
        self._size -= sum(len(message.body) for message in taken)
        if self._over:
            return
        if method.NAME == "Basic.Nack" and taken:
            self._end(
                Unavailable(
                    f"{self._broker.address} refuses messages with the routing key {taken[0].routing_key!r}: a queue "
                    "is full (x-max-length with x-overflow reject-publish) or away; rabbitmqctl list_queues name "
                    "messages arguments shows it"
                )
            )
        elif self._unroutable is not None:
            self._end(self._not_routed(*self._unroutable))
        else:
            self._go_on()

    def _returned(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """The broker has returned a message that it could not route.  The message's confirm follows."""
        found = next((one for one in self._waiting.values() if one.message_id == properties.message_id), None)
        if found is not None and self._unroutable is None:
            self._unroutable = found, method.reply_text

    # -- what was wrong
    def _not_routed(self, message: Outgoing, text: str) -> TailraceError:
        where = f"the exchange {message.exchange!r}" if message.exchange else "the default exchange"
        said = f"{self._broker.address}: {where} has no queue for the routing key {message.routing_key!r} ({text}); "
        if message.exchange:
            said += (
                f"rabbitmqadmin declare binding source={message.exchange} destination=QUEUE "
                f"routing_key={message.routing_key}"
            )
        else:
            said += f"rabbitmqadmin declare queue name={message.routing_key} durable=true"
        if self._fixed:
            return NotReady(said)
        return Rejected(said, namespace=message.namespace, id=message.id)

    def _refused(self, error: BaseException) -> TailraceError:
        """The error for a channel that the broker has closed: `Rejected` where one message is the cause."""
        first = next(iter(self._waiting.values()), None)
        if code_of(error) == PRECONDITION and (size := _SIZE.search(str(error))):
            large = next((one for one in self._waiting.values() if len(one.body) == int(size[1])), first)
            if large is not None:
                return Rejected(
                    f"{self._broker.address} does not take the message {large.id!r} of {large.namespace}: it has "
                    f"{size[1]} bytes; raise max_message_size in rabbitmq.conf",
                    namespace=large.namespace,
                    id=large.id,
                )
        name = first.exchange if first is not None else ""
        what = f"rabbitmqadmin declare exchange name={name} type=topic durable=true"
        refused = failed(error, self._broker.address, "publishing", what)
        if code_of(error) == NOT_FOUND and not self._fixed and first is not None:
            return Rejected(str(refused), namespace=first.namespace, id=first.id)
        return refused

    # -- waiting
    def _was_blocked(self, _: Any, frame: Any) -> None:
        self._blocked, self._since = frame.method.reason or "no reason given", time.monotonic()

    def _was_unblocked(self, _: Any, __: Any) -> None:
        self._blocked, self._since = None, time.monotonic()
        self._go_on()

    def _watch(self) -> None:
        """End the publication if the broker has blocked it, or confirmed nothing, for too long."""
        if self._over:
            return
        for blocked, seconds, error in self._limits():
            if blocked == (self._blocked is not None) and time.monotonic() - self._since > seconds:
                self._end(error())
                return
        self._connection.ioloop.call_later(WATCH_SECONDS, self._watch)

    def _limits(self) -> list[tuple[bool, float, Callable[[], TailraceError]]]:
        where = self._broker.address
        return [
            (True, self._settings.blocked_seconds, lambda: Unavailable(
                f"{where} blocks publishers: {self._blocked}; rabbitmqctl status shows its memory and disk, and "
                "publishing goes on once it has room"
            )),
            (False, CONFIRM_SECONDS, lambda: Unavailable(
                f"{where} has confirmed none of {len(self._waiting)} messages within {CONFIRM_SECONDS:.0f} s"
            )),
        ]  # fmt: skip
