"""The writer: posts messages to an endpoint, several requests at a time.

The writer distributes messages over lanes by their documents.  A lane posts one request after the other, so the changes
of a document arrive in order.  If a batch fails, the writer remembers which of its messages the endpoint has taken, and
does not post them again.  Another process does post them again, with the same keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Event
from typing import ClassVar
from urllib.parse import quote

import pyarrow as pa

from tailrace.adaptors.contract import Guarantee, Staged, Who, Writer
from tailrace.adaptors.http.settings import HttpSink
from tailrace.adaptors.http.sink.endpoint import Endpoint
from tailrace.adaptors.http.sink.messages import Post, Unit, units
from tailrace.adaptors.sinks.folding import counted
from tailrace.errors import StorageError


class HttpWriter(Writer):
    """Posts to one endpoint."""

    guarantee: ClassVar[Guarantee] = "at least once"

    def __init__(self, settings: HttpSink) -> None:
        self._settings = settings
        self._taken: set[str] = set()
        """The keys of the messages that the endpoint has taken of a batch that is not finished yet."""

    def __repr__(self) -> str:
        return f"HttpWriter({self._settings!r})"

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint(self._settings)

    def check(self) -> None:
        """Connect to the endpoint, and check its certificate.  Sends nothing."""
        self._endpoint.check()

    def forget(self, who: Who) -> None:
        """Forget which messages the endpoint has taken, so that they are posted again."""
        self._taken.clear()

    def stage(self, rows: Iterable[pa.RecordBatch]) -> Staged:
        """Make the messages of a share; the task's result carries them to the driver."""
        counts: dict[str, int] = {}
        made = list(units(counted(rows, counts)))
        return Staged(sum(counts.values()), made, counts)

    def finish(self, staged: Sequence[Staged], who: Who, offsets: Mapping[str, object]) -> None:
        """Post all messages.  Returns when the endpoint has taken every one."""
        lanes: list[list[Post]] = [[] for _ in range(self._settings.requests)]
        for share in staged:
            for unit in share.detail or ():
                self._deal(unit, lanes)
        stop = Event()
        busy = [lane for lane in lanes if lane]
        with ThreadPoolExecutor(max(1, len(busy)), "tailrace-http") as pool:
            sending = [pool.submit(self._send, lane, quote(f"{who.pipeline}/{who.writer}"), stop) for lane in busy]
            errors = [error for one in sending if (error := one.exception()) is not None]
        if errors:  # an error of a message or of the settings says more than a lane that could not reach the endpoint
            raise min(errors, key=lambda error: isinstance(error, StorageError))
        self._taken.clear()

    def _deal(self, unit: Unit, lanes: Sequence[list[Post]]) -> None:
        for post in unit.posts():
            if not post.key or post.key not in self._taken:
                lanes[post.lane % len(lanes)].append(post)

    def _send(self, lane: Sequence[Post], name: str, stop: Event) -> None:
        try:
            for part in self._parts(lane):
                if stop.is_set():
                    return
                id = part[0].id if len(part) == 1 else ""
                key, body = self._request(name, part)
                self._endpoint.post(part[0].namespace, id, key, body, stop.is_set)
                self._taken.update(post.key for post in part if post.key)
        except BaseException:
            stop.set()
            raise

    def _parts(self, lane: Sequence[Post]) -> Iterator[list[Post]]:
        """Cut a lane into the parts that one request holds: messages of one namespace, in order."""
        part: list[Post] = []
        size = 0
        for post in lane:
            full = len(part) >= self._settings.batch_rows or size + len(post.body) > self._settings.batch_bytes
            if part and (full or post.namespace != part[0].namespace):
                yield part
                part, size = [], 0
            part.append(post)
            size += len(post.body)
        if part:
            yield part

    def _request(self, name: str, part: Sequence[Post]) -> tuple[str, bytes]:
        """The idempotency key and the body of a request.  For several messages the key is a hash of the body: after a
        crash they may be cut into other requests.  A receiver then recognizes each message by its own key."""
        if self._settings.batch_rows == 1:
            body = part[0].body
            key = part[0].key.encode(errors="surrogateescape")
            return f"{name}/{quote(key) or _digest(body)}", body
        body = b'{"messages":[' + b",".join(post.body for post in part) + b"]}"
        return f"{name}/{_digest(body)}", body

    def close(self) -> None:
        """Close the connections."""
        if "_endpoint" in self.__dict__:
            self._endpoint.close()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]
