"""The reader: follows the queues, streams and super streams of a virtual host, each a namespace.

A split is a queue, a stream, or a partition of a super stream: "queue/NAME", "stream/NAME", "super/NAME/STREAM", the
names percent-encoded.  There is no copy, because a broker has nothing but messages.  This package imports the clients
only inside functions: an installation without them can still describe the adaptor."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from tailrace.adaptors.contract import Changes, Namespace, Position, Reader
from tailrace.adaptors.formats.start import moment
from tailrace.adaptors.rabbitmq.broker import Broker, declare
from tailrace.adaptors.rabbitmq.settings import RabbitSource
from tailrace.adaptors.rabbitmq.source.queue_follower import BEAT_SECONDS, QueueFollower
from tailrace.adaptors.rabbitmq.source.seen_ids import SeenIds
from tailrace.adaptors.rabbitmq.source.stream_client import StreamClient
from tailrace.adaptors.rabbitmq.source.stream_follower import StreamFollower, position_at
from tailrace.errors import BadSetting, NotReady

STREAM_PORTS = {"amqp": 5552, "amqps": 5551}


class RabbitReader(Reader):
    """Reads the queues and streams of one virtual host that the settings name."""

    follows = True

    def __init__(self, settings: RabbitSource) -> None:
        self._settings = settings
        names = [*settings.queues, *settings.streams, *settings.super_streams]
        if not names:
            raise BadSetting('name what is to be read: queues, streams or super_streams = ["…"]')
        if any(not 0 < len(name.encode()) <= 255 for name in names):
            raise BadSetting("queues, streams and super_streams: a name has 1 to 255 bytes")
        if len(set(names)) < len(names):
            raise BadSetting("queues, streams and super_streams: a name is there twice, and each is a namespace")
        if 0 < settings.remember < settings.prefetch:
            raise BadSetting("remember: what was taken and may come again is as much as prefetch; it must be no less")
        self._follower: QueueFollower | StreamFollower | None = None
        self._changes: Generator[Changes] | None = None

    def __repr__(self) -> str:
        return f"RabbitReader({self._settings!r})"

    @cached_property
    def _broker(self) -> Broker:
        return Broker(self._settings)

    @property
    def _stream_port(self) -> int:
        return self._settings.stream_port or STREAM_PORTS[self._broker.scheme]

    @contextlib.contextmanager
    def _streams(self) -> Iterator[StreamClient]:
        with contextlib.closing(StreamClient(self._broker, self._stream_port)) as client:
            yield client

    # -- what is there
    def check(self) -> None:
        """Connect, check the start, and raise if a queue, stream or super stream is missing, or a queue is named as a
        stream or a stream as a queue."""
        moment(self._settings.start)
        self._broker.connect().close()
        for queue in self._settings.queues:
            self._check_there(queue, "queue", declare(queue))
            if self._broker.is_stream(queue):
                raise NotReady(f"{self._broker.address}: {queue} is a stream; name it in streams, not in queues")
        for stream in self._settings.streams:
            self._check_there(stream, "stream", declare(stream, "stream"))
            if not self._broker.is_stream(stream):
                raise NotReady(f"{self._broker.address}: {stream} is a queue; name it in queues, not in streams")
        if self._settings.streams or self._settings.super_streams:
            with self._streams() as client:
                for name in self._settings.super_streams:
                    self._partitions(client, name)

    def _check_there(self, name: str, kind: str, order: str) -> None:
        if self._broker.depth(name) is None:
            raise NotReady(f"{self._broker.address} has no {kind} {name!r}; {order}")

    def _partitions(self, client: StreamClient, super_stream: str) -> list[str]:
        found = client.partitions(super_stream)
        if not found:
            raise NotReady(
                f"{self._broker.address} has no super stream {super_stream!r}; "
                f"rabbitmq-streams add_super_stream {super_stream} --partitions 3"
            )
        return found

    def namespaces(self) -> list[Namespace]:
        """The queues, streams and super streams that the settings name."""
        given = self._settings
        return [Namespace(name) for name in (*given.queues, *given.streams, *given.super_streams)]

    # -- following
    def begin(self, namespaces: Sequence[str]) -> Position:
        """The position of each split: an offset for a stream, and an empty `SeenIds` for a queue, which keeps its
        messages until they are acknowledged."""
        wanted = [split for split in self._splits() if _namespace_of(split) in namespaces]
        splits: dict[str, Any] = {}
        with contextlib.ExitStack() as stack:
            client: StreamClient | None = None
            for split in wanted:
                if split.startswith("queue/"):
                    splits[split] = SeenIds(None, self._settings.remember).stored()
                elif self._settings.start == "earliest":
                    splits[split] = {"start": "first"}
                else:
                    client = client or stack.enter_context(self._streams())
                    at = moment(self._settings.start)
                    splits[split] = position_at(client, self._broker, _stream_of(split), at)
        return {"splits": splits}

    def splits(self, position: Position) -> Sequence[str]:
        """The splits of the settings.  A split that the position lacks is followed from its first message."""
        return self._splits()

    def _splits(self) -> list[str]:
        given = self._settings
        found = [_split("queue", name) for name in given.queues] + [_split("stream", name) for name in given.streams]
        if given.super_streams:
            with self._streams() as client:
                for name in given.super_streams:
                    found += [_split("super", name, stream) for stream in self._partitions(client, name)]
        return found

    def follow(self, position: Position, namespaces: Sequence[str], split: str = "") -> Iterator[Changes]:
        """The messages of the split's queue or stream, as changes."""
        namespace = _namespace_of(split)
        if split.startswith("queue/"):
            stored = position or SeenIds(None, 0).stored()
            follower: Any = QueueFollower(self._broker, self._settings, namespace, stored)
        else:
            stored = position or {"start": "first"}
            follower = self._stream_follower(split, namespace, stored)
        self._follower = follower
        self._changes = _once_taken(namespace, namespaces, stored, follower.changes)
        return self._changes

    def _stream_follower(self, split: str, namespace: str, stored: Mapping[str, Any]) -> StreamFollower:
        part, stream = -1, _stream_of(split)
        if split.startswith("super/"):
            with self._streams() as client:
                part = self._partitions(client, namespace).index(stream)
        return StreamFollower(self._broker, self._settings, self._stream_port, stream, namespace, part, stored)

    def acknowledge(self, position: Position) -> None:
        """Acknowledge a queue's messages to the broker, which then removes them.  Nothing to do for a stream."""
        if isinstance(self._follower, QueueFollower):
            self._follower.acknowledge(position)

    def close(self) -> None:
        """Stop following, and close the connections."""
        if self._changes is not None:
            self._changes.close()
        if self._follower is not None:
            self._follower.close()


def _split(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _namespace_of(split: str) -> str:
    return unquote(split.split("/")[1])


def _stream_of(split: str) -> str:
    return unquote(split.split("/")[-1])


def _once_taken(
    namespace: str, namespaces: Sequence[str], stored: Any, changes: Callable[[], Generator[Changes]]
) -> Generator[Changes]:
    """Offer the pipeline a namespace that it does not have yet, wait until it takes it, and then give the changes.  A
    pipeline that does not want the namespace never takes it."""
    if namespace not in namespaces:
        yield Changes([], stored, appeared=[namespace])
    while namespace not in namespaces:
        time.sleep(BEAT_SECONDS)
        yield Changes([], stored, caught_up=True)
    yield from changes()
