"""Messages of rows: the exchange, routing key, headers, properties and body of each.

    headers       namespace, op; partition and offset, the place in the commit log, by which a consumer recognizes a
                  repeat; transaction and position where the source has them; key, the id; timestamp_in_ms; unset, the
                  fields that a change leaves as they are, as JSON
    message_id    <name>:<namespace>:<partition>-<offset>; a function may make several messages of one, and those after
                  the first end in -1, -2 and so on

A delete has the body null.  Records of topics and messages of brokers keep the body that they came with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.adaptors.formats.outgoing import outgoing
from tailrace.adaptors.formats.place_ids import PlaceIds
from tailrace.adaptors.rabbitmq.settings import RabbitSink
from tailrace.adaptors.rabbitmq.sink.template import Template
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.records import is_record
from tailrace.adaptors.rows.rows import messages_of
from tailrace.errors import Rejected

MAX_HEADER_BYTES = 64 * 1024
"""The most bytes of headers: all headers of a message are in one frame, of 128 KiB by default."""
NULL = b"null"


@dataclass(slots=True)
class Outgoing:
    """A message to publish."""

    exchange: str
    routing_key: str
    body: bytes
    headers: dict[str, Any]
    message_id: str
    timestamp: int
    json: bool
    namespace: str
    id: str = field(repr=False)


class Messages:
    """Makes the messages of a share of rows."""

    def __init__(self, settings: RabbitSink) -> None:
        self._settings = settings
        self.exchange, self.routing_key = (
            Template("exchange", settings.exchange),
            Template("routing_key", settings.routing_key),
        )
        self._places = PlaceIds()

    def of(self, rows: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        """The messages of these rows, in order.  `Rejected` for a row of which no message can be made."""
        for batch in rows:
            records = outgoing(batch, self._settings, tombstones=False)
            columns = [records.column(name).to_pylist() for name in ("key", "value", "headers")]
            as_it_was = is_record(batch)
            for message, key, value, headers in zip(messages_of(batch), *columns, strict=True):
                yield self._one(message, key, value, headers or (), as_it_was)

    def _one(
        self,
        message: Message,
        key: bytes | None,
        value: bytes | None,
        given: Iterable[Mapping[str, Any]],
        as_it_was: bool,
    ) -> Outgoing:
        headers = {one["name"]: _text(one["value"]) for one in given}
        headers |= {name: number for name, number in message.place._asdict().items() if number is not None}
        headers |= {"namespace": message.namespace, "op": message.op.name.lower()}
        if message.timestamp > 0:
            headers["timestamp_in_ms"] = message.timestamp
        if key is not None:
            headers["key"] = _text(key)
        if (size := sum(len(str(one)) for one in headers.values())) > MAX_HEADER_BYTES:
            raise Rejected(
                f"the headers of a message of {message.namespace} would have {size} bytes, over {MAX_HEADER_BYTES}: "
                "its id is too long for one",
                namespace=message.namespace,
                id=message.id,
            )
        return Outgoing(
            self.exchange.of(message),
            self.routing_key.of(message),
            (b"" if as_it_was else NULL) if value is None else value,
            headers,
            f"{self._settings.name}:{message.namespace}:{self._places.of(message.namespace, message.place)}",
            message.timestamp,
            not as_it_was,
            message.namespace,
            message.id,
        )


def _text(value: bytes | None) -> Any:
    """The value as text if it is UTF-8, else as bytes, which the client writes as they are."""
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return value
