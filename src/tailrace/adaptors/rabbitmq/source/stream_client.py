"""Stream client: speaks the stream protocol in an event loop and a thread of its own, and hands on chunks as they come.

rstream's consumer reconnects by itself, and goes on after what it believes was handled.  So this module uses only
rstream's client, which connects, subscribes and decodes frames.  It asks for another chunk whenever the reader takes
one, so few are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.adaptors.rabbitmq.broker import ANSWER_SECONDS, Broker
from tailrace.adaptors.rabbitmq.errors import failed
from tailrace.errors import NotInstalled, NotReady, TailraceError, Unavailable

if TYPE_CHECKING:
    from rstream.schema import Deliver

T = TypeVar("T")
CREDIT = 4
"""How many chunks the broker may send before the reader takes one."""
FRAME_BYTES = 1024 * 1024
SUBSCRIPTION = 1
"""The id of the one subscription that a connection has."""


class Ended:
    """Comes in place of a chunk when no more will: the stream was deleted or moved to another broker, or the connection
    is lost."""


class StreamClient:
    """One connection of the stream protocol, and at most one subscription."""

    def __init__(self, broker: Broker, port: int) -> None:
        try:
            import rstream  # noqa: F401
        except ImportError:
            raise NotInstalled("streams need a package: pip install 'tailrace[rabbitmq]'") from None
        self._broker, self._port = broker, port
        self._chunks: queue.Queue[Deliver | Ended] = queue.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-stream", daemon=True)
        self._client: Any = None
        self._thread.start()
        try:
            self._call(self._connected(broker.address.host, port), "connecting to the stream port")
        except BaseException:
            self.close()
            raise

    async def _connected(self, host: str, port: int) -> None:
        from rstream.client import Client

        address = self._broker.address
        self._client = Client(
            host, port, ssl_context=self._broker.tls(), frame_max=FRAME_BYTES, heartbeat=60,
            connection_name="tailrace", connection_closed_handler=lambda _: self._chunks.put(Ended()),
        )  # fmt: skip
        await self._client.start()
        await self._client.authenticate(address.vhost, address.user, self._broker.password)
        self._client.add_stream("any")  # rstream calls connection_closed_handler only if the client has a stream
        for task in self._client._tasks.values():
            task.add_done_callback(lambda _: self._chunks.put(Ended()))

    def _call(self, work: Coroutine[Any, Any, T], doing: str) -> T:
        """Run a coroutine in the loop and wait for its result.  Raises rstream's errors as tailrace's."""
        from rstream import exceptions

        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(2 * ANSWER_SECONDS)
        except exceptions.ServerError as error:
            raise self._refused(error, doing) from None
        except (OSError, TimeoutError, exceptions.ClientError, AssertionError) as error:
            future.cancel()
            where = f"{self._broker.address.host}:{self._port}"
            raise Unavailable(
                f"{self._broker.address}, {doing}: {str(error) or type(error).__name__}; is the plugin on "
                f"(rabbitmq-plugins enable rabbitmq_stream), and {where} its port (stream_port)?"
            ) from None

    def _refused(self, error: BaseException, doing: str) -> TailraceError:
        name, address = type(error).__name__, self._broker.address
        if name == "VirtualHostAccessFailure":
            return NotReady(f"{address} has no such vhost, or this user no rights there; {address.permissions}")
        if name == "AccessRefused":
            return NotReady(f"{address}, {doing}: access refused; {address.permissions}")
        if name == "AuthenticationFailure":
            return failed(error, address, doing)
        return Unavailable(f"{address}, {doing}: {name}")

    # -- asking
    def exists(self, stream: str) -> bool:
        """Whether a stream of this name exists."""
        return bool(self._call(self._client.stream_exists(stream), f"asking for the stream {stream}"))

    def partitions(self, super_stream: str) -> list[str]:
        """The streams of a super stream, in order; none if the super stream does not exist."""
        from rstream import schema
        from rstream.constants import Key

        # RabbitMQ 3.10 sends this answer without the bit that marks answers.  As a request it never comes to a client.
        schema.registry[False, Key.Partitions] = schema.SuperStreamPartitionsResponse
        return list(self._call(self._client.partitions(super_stream), f"asking for the super stream {super_stream}"))

    def subscribe(self, stream: str, kind: str, value: int | None = None) -> None:
        """Subscribe to a stream from "first", "last", an "offset" or a "timestamp", in place of an earlier
        subscription."""
        from rstream import schema
        from rstream.constants import OffsetType
        from rstream.schema import OffsetSpec

        async def begin() -> None:
            client, handler = self._client, self._chunks.put
            with contextlib.suppress(Exception):
                await client.unsubscribe(SUBSCRIPTION)
            await client.stop_queue_listener_task(SUBSCRIPTION)
            while not self._chunks.empty():
                self._chunks.get_nowait()
            client.add_handler(schema.Deliver, _nothing, name=str(SUBSCRIPTION))
            client.add_handler(schema.MetadataUpdate, lambda _: handler(Ended()), name="ended")
            await client.run_queue_listener_task(SUBSCRIPTION, handler)
            spec = OffsetSpec.from_params(OffsetType[kind.upper()], value)
            await client.subscribe(stream, SUBSCRIPTION, spec, CREDIT)

        self._call(begin(), f"reading the stream {stream}")

    def chunk(self, seconds: float) -> Deliver | Ended | None:
        """Wait for the next chunk; `Ended` if no more will come, None if none came in this time."""
        try:
            found = self._chunks.get(timeout=seconds)
        except queue.Empty:
            return None
        if not isinstance(found, Ended):
            self._soon(lambda: self._client.credit(SUBSCRIPTION, 1))
        return found

    def _soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(work(), self._loop)

    def close(self) -> None:
        """Close the connection, and stop the thread."""
        if self._client is not None and self._thread.is_alive():
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._closed(), self._loop).result(ANSWER_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _closed(self) -> None:
        """Close the client, and then its transport, which the client leaves open if the connection was lost."""
        connection = self._client._conn
        try:
            await self._client.close()
        finally:
            if connection is not None and connection._writer is not None:
                connection._writer.transport.abort()
                await asyncio.sleep(0)


def _nothing(_: Any) -> None:
    """Do nothing: the client's listener task hands on the chunks, but the client wants a handler as well."""
