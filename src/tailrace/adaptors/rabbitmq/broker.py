"""The broker: its address, connections to it, and questions about its queues."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tailrace.adaptors.rabbitmq.errors import NOT_FOUND, Address, code_of, failed
from tailrace.adaptors.rabbitmq.settings import RabbitSettings
from tailrace.errors import BadSetting, NotInstalled

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

ANSWER_SECONDS = 15.0
"""How long a request waits for its answer."""
PORTS = {"amqp": 5672, "amqps": 5671}


class Broker:
    """One virtual host of a broker.  Neither its `repr` nor its errors show the password."""

    def __init__(self, settings: RabbitSettings) -> None:
        if importlib.util.find_spec("pika") is None:
            raise NotInstalled("rabbitmq needs a package: pip install 'tailrace[rabbitmq]'")
        self._settings = settings
        self.scheme, self.address, self._password = _parsed(settings.uri)
        for name in ("pika", "rstream"):  # what these clients log also comes as an exception
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    def __repr__(self) -> str:
        return f"Broker({self.address})"

    @property
    def password(self) -> str:
        """The user's password."""
        return self._password

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context, with the certificates of the settings; None for amqp://."""
        if self.scheme == "amqp":
            return None
        given = self._settings
        try:
            context = ssl.create_default_context(cafile=given.ca)
            if given.certificate is not None:
                context.load_cert_chain(given.certificate, given.certificate_key)
        except OSError as error:
            raise BadSetting(f"ca, certificate and certificate_key must name PEM files: {error}") from None
        return context

    def parameters(self) -> Any:
        """pika's parameters for a connection."""
        import pika

        context = self.tls()
        return pika.ConnectionParameters(
            host=self.address.host,
            port=self.address.port,
            virtual_host=self.address.vhost,
            credentials=pika.PlainCredentials(self.address.user, self._password),
            ssl_options=None if context is None else pika.SSLOptions(context, self.address.host),
            heartbeat=self._settings.heartbeat,
            socket_timeout=ANSWER_SECONDS,
            stack_timeout=2 * ANSWER_SECONDS,
            blocked_connection_timeout=None,
            client_properties={"connection_name": "tailrace"},
        )

    @contextlib.contextmanager
    def guarded(self, doing: str, what: str = "") -> Iterator[None]:
        """Raise pika's errors and those of the network as tailrace's errors.  `what` is the command that makes what may
        be missing."""
        from pika.exceptions import AMQPError

        try:
            yield
        except (AMQPError, OSError) as error:
            raise failed(error, self.address, doing, what) from None

    def connect(self) -> BlockingConnection:
        """Make a new connection, which the caller closes."""
        import pika

        with self.guarded("connecting"):
            return pika.BlockingConnection(self.parameters())

    @contextlib.contextmanager
    def channel(self, doing: str, what: str = "") -> Iterator[BlockingChannel]:
        """A channel on a new connection, which is closed at the end."""
        connection = self.connect()
        try:
            with self.guarded(doing, what):
                yield connection.channel()
        finally:
            close(connection)

    def depth(self, queue: str) -> int | None:
        """How many messages of a queue are ready to be delivered; None if there is no such queue."""
        from pika.exceptions import ChannelClosedByBroker

        with self.channel(f"asking for the queue {queue}") as channel:
            try:
                return int(channel.queue_declare(queue, passive=True).method.message_count)
            except ChannelClosedByBroker as error:
                if code_of(error) == NOT_FOUND:
                    return None
                raise

    def is_stream(self, queue: str) -> bool:
        """Whether an existing queue is a stream: only a stream can be read from an offset."""
        from pika.exceptions import ChannelClosedByBroker

        with self.channel(f"asking for the queue {queue}") as channel:
            channel.basic_qos(prefetch_count=1)
            try:
                channel.basic_consume(queue, _ignore, arguments={"x-stream-offset": "next"})
            except ChannelClosedByBroker as error:
                if "x-stream-offset" in str(error):
                    return False
                raise
        return True


def _ignore(*_: object) -> None:
    """Drop a message that `is_stream` was sent.  It is not acknowledged, and a stream keeps its messages anyway."""


def declare(queue: str, kind: str = "") -> str:
    """The command with which the user makes a queue of the broker, of a kind such as "stream"."""
    arguments = f""" arguments='{{"x-queue-type": "{kind}"}}'""" if kind else ""
    return f"rabbitmqadmin declare queue name={queue} durable=true{arguments}"


def close(connection: Any) -> None:
    """Close a connection once it has sent what it holds.  A broken one raises nothing."""
    from pika.exceptions import AMQPError

    with contextlib.suppress(AMQPError, OSError, ValueError):
        if connection.is_open:
            connection.close()


def _parsed(uri: str) -> tuple[str, Address, str]:
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise BadSetting("uri: this is no address; amqp://user:password@host:5672/vhost is one") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise BadSetting("uri: it must begin with amqp:// or amqps:// and name a host: amqp://user:password@host/vhost")
    if parts.query or parts.fragment or "@" in parts.path:
        raise BadSetting("uri: '?', '#' and '@' in a user, a password or a vhost are written %3F, %23 and %40")
    vhost = unquote(parts.path[1:]) or "/"
    user = unquote(parts.username or "guest")
    address = Address(parts.hostname, port or PORTS[parts.scheme], vhost, user)
    return parts.scheme, address, unquote(parts.password or "guest")
