"""Settings of the rabbitmq adaptor: what a pipeline's file says about its source and its sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import PathMark, Settings, secret
from tailrace.adaptors.contract.settings import BatchBytes, BatchRows

Names = tuple[str, ...]


class RabbitSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a broker."""

    uri: Annotated[
        str, secret("where it is: amqp://user:password@host:5672/vhost, with TLS amqps://…:5671; no vhost: '/'")
    ]
    ca: Annotated[str | None, PathMark(), Meta(description="the authority of its certificate, a PEM file")] = None
    certificate: Annotated[str | None, PathMark(), Meta(description="of the client, a PEM file")] = None
    certificate_key: Annotated[str | None, PathMark(), Meta(description="its key, a PEM file without a password")] = (
        None
    )
    heartbeat: Annotated[
        int, Meta(description="seconds of silence after which either end gives a connection up, about", ge=5, le=3600)
    ] = 60


class RabbitSource(RabbitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Queues, streams and super streams to follow.  Each is a namespace."""

    queues: Annotated[Names, Meta(description="queues, classic or quorum, whose messages are taken out")] = ()
    streams: Annotated[Names, Meta(description="streams, which keep what is read")] = ()
    super_streams: Annotated[Names, Meta(description="super streams: each partition is followed by itself")] = ()
    stream_port: Annotated[
        int, Meta(description="of the stream plugin; 0: its own, 5552, with TLS 5551", ge=0, le=65535)
    ] = 0
    start: Annotated[
        str,
        Meta(description="where streams are read from at first: earliest, latest, or a time as 2026-01-31T12:00:00Z"),
    ] = "earliest"
    format: Annotated[
        Literal["json", "text", "bytes", "debezium", "cloudevents"],
        Meta(
            description="'json': the fields of each message; 'text': each as the field value; 'bytes': each as it is, "
            "under its partition and offset; 'debezium': the changes that its envelopes tell of; 'cloudevents': "
            "events, under their source and id"
        ),
    ] = "json"
    key: Annotated[
        str,
        Meta(
            description="what a document's id is made of: message_id, correlation_id, routing_key, header:NAME or "
            "none; a message without it is a document under the number that it has here",
            pattern=r"^(message_id|correlation_id|routing_key|none|header:.+)$",
        ),
    ] = "message_id"
    keys: Annotated[
        Literal["auto", "text", "bytes"],
        Meta(description="'auto': the fields of a key that is a JSON object, else its text; 'text'; 'bytes'"),
    ] = "auto"
    key_field: Annotated[str, Meta(description="the field for a key that has none of its own", min_length=1)] = "_key"
    metadata: Annotated[
        bool, Meta(description="of formats json and text, a field _rabbitmq with offset, timestamp and headers as JSON")
    ] = False
    truncates: Annotated[bool, Meta(description="of format debezium, carry truncates out; false: they are passed")] = (
        True
    )
    prefetch: Annotated[
        int,
        Meta(description="messages of a queue that are taken and not yet in the commit log, at most", ge=1, le=65535),
    ] = 1000
    remember: Annotated[
        int,
        Meta(
            description="how many of a queue's last messages with an id are recognized when they come again; at least "
            "prefetch; 0: all messages are taken",
            ge=0,
            le=20_000,
        ),
    ] = 4096
    batch_rows: BatchRows = 5000
    batch_bytes: BatchBytes = 8 * 1024 * 1024


class RabbitSink(RabbitSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exchange to which the sink publishes every message, with confirms."""

    exchange: Annotated[
        str,
        Meta(description="its name; {namespace}, {op} and {data.FIELD} stand for what a message has; '': the default"),
    ] = ""
    routing_key: Annotated[
        str, Meta(description="as exchange; {id}, too.  To the default exchange it is the name of a queue")
    ] = "{namespace}"
    format: Annotated[
        Literal["json", "debezium"],
        Meta(description="'json': the document, null if it was deleted; 'debezium': its envelope"),
    ] = "json"
    key: Annotated[
        Literal["text", "json"], Meta(description="in the header key: the id as text, or its fields as a JSON object")
    ] = "text"
    persistent: Annotated[bool, Meta(description="messages outlive the broker in durable queues")] = True
    name: Annotated[
        str, Meta(description="what message ids begin with; of several pipelines into one queue each has its own")
    ] = "tailrace"
    window: Annotated[int, Meta(description="messages that are sent and not yet confirmed, at most", ge=1)] = 2000
    blocked_seconds: Annotated[
        float, Meta(description="so long a broker that blocks publishers (memory, disk) is waited for in silence", ge=0)
    ] = 30.0

    @property
    def headers(self) -> bool:
        """Always true: each message has headers with its partition and offset in the commit log."""
        return True
