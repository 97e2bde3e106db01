"""Settings of the kafka adaptor: what a pipeline's file says about its source and its sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import PathMark, Settings, secret


class KafkaSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a cluster, and as which user."""

    brokers: Annotated[str, Meta(description="some of its brokers: host:9092,other:9092", min_length=1)]
    security: Annotated[
        Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"],
        Meta(description="how brokers are talked to; with a user one of the last two"),
    ] = "plaintext"
    mechanism: Annotated[
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="how the user is known")
    ] = "PLAIN"
    user: Annotated[str | None, Meta(description="who connects, with sasl_plaintext or sasl_ssl")] = None
    password: Annotated[str | None, secret("of the user")] = None
    ca: Annotated[
        str | None, PathMark(), Meta(description="the authority of the brokers' certificates, a PEM file")
    ] = None
    certificate: Annotated[str | None, PathMark(), Meta(description="of the client, a PEM file")] = None
    certificate_key: Annotated[str | None, PathMark(), Meta(description="its key, a PEM file without a password")] = (
        None
    )


class KafkaSource(KafkaSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics, each a namespace, followed from the start of the user's choice."""

    format: Annotated[
        Literal["json", "text", "bytes", "debezium", "cloudevents"],
        Meta(
            description="'json': the fields of each value, under the id that its key is; 'text': each value as the "
            "field value; 'bytes': each record as it is, under its partition and offset; 'debezium': the changes that "
            "its envelopes tell of; 'cloudevents': events, under their source and id"
        ),
    ] = "json"
    encoding: Annotated[
        Literal["json", "avro", "protobuf"],
        Meta(description="of format json, what values are; keys of a registry's schemas, too"),
    ] = "json"
    registry: Annotated[
        str | None, secret("where the schemas are that values name: https://user:password@host:8081")
    ] = None
    schema: Annotated[
        str | None,
        PathMark(),
        Meta(description="the schema of all values: Avro's as JSON, or what protoc --include_imports -o writes"),
    ] = None
    message: Annotated[
        str | None, Meta(description="with a schema of protobuf, which message values are: shop.Order")
    ] = None
    start: Annotated[
        str,
        Meta(
            description="where topics that are there at the first start are read from: earliest, latest, or a time as "
            "2026-01-31T12:00:00Z; those that come later are read from their first record",
        ),
    ] = "earliest"
    prefix: Annotated[
        str,
        Meta(
            description="only topics that begin with it are read, and it is taken off to make the namespace: with "
            "'shop.' the topic shop.public.orders is public.orders"
        ),
    ] = ""
    keys: Annotated[
        Literal["auto", "text", "bytes"],
        Meta(
            description="of formats json and text, what an id is: 'auto': the fields of a key that is a JSON object, "
            "else its text; 'text'; 'bytes'"
        ),
    ] = "auto"
    key_field: Annotated[str, Meta(description="the field for a key that has none of its own", min_length=1)] = "_key"
    metadata: Annotated[
        bool,
        Meta(
            description="of formats json and text, a field _kafka with partition, offset, timestamp and headers as JSON"
        ),
    ] = False
    truncates: Annotated[
        bool,
        Meta(
            description="of format debezium, carry truncates out: only with one partition there is an order between "
            "them and rows, so with several they stop the pipeline; false: they are passed"
        ),
    ] = True
    committed: Annotated[
        bool, Meta(description="only records of committed transactions (read_committed); false: of all")
    ] = True
    receivers: Annotated[
        int,
        Meta(description="groups of partitions, each with a receiver; fixed when a pipeline begins", ge=1, le=64),
    ] = 2
    group: Annotated[
        str | None,
        Meta(description="a consumer group whose offsets show how far the pipeline is; never read from"),
    ] = None
    discover: Annotated[float, Meta(description="seconds between looks for new topics and partitions", ge=0.1)] = 5.0
    batch_rows: Annotated[int, Meta(description="the most records in one batch", ge=1)] = 10_000
    batch_bytes: Annotated[int, Meta(description="about the most bytes in one batch", ge=1024)] = 8 * 1024 * 1024


class KafkaSink(KafkaSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Topics to which the sink appends every message, in transactions: readers of committed records see each exactly
    once."""

    topic: Annotated[
        str | None, Meta(description="the topic for all messages; if not given each namespace has one of its name")
    ] = None
    prefix: Annotated[str, Meta(description="put before the namespace to make the topic's name: 'shop.'")] = ""
    format: Annotated[
        Literal["json", "debezium"],
        Meta(
            description="'json': the document, null if it was deleted; 'debezium': its envelope, with before, after, "
            "op and source, and a record without a value after each delete"
        ),
    ] = "json"
    key: Annotated[
        Literal["text", "json"],
        Meta(description="of format json: the id as text, or its fields as a JSON object, as debezium always has it"),
    ] = "text"
    truncates: Annotated[
        bool,
        Meta(
            description="of format debezium, with a topic for each namespace: a truncate becomes a record with op t in "
            "every partition; false: it is passed, as Debezium does unless skipped.operations says otherwise"
        ),
    ] = False
    headers: Annotated[bool, Meta(description="headers with each message's partition and offset in the commit log")] = (
        True
    )
    create: Annotated[bool, Meta(description="make topics that are missing")] = False
    partitions: Annotated[int, Meta(description="of topics that are made", ge=1)] = 8
    replication: Annotated[
        int, Meta(description="of topics that are made; -1: as the brokers are configured", ge=-1)
    ] = -1
    compression: Annotated[Literal["none", "lz4", "zstd", "snappy", "gzip"], Meta(description="of what is sent")] = (
        "lz4"
    )
    transaction_seconds: Annotated[
        int,
        Meta(
            description="after so long the brokers abort a transaction that was left open; readers of committed "
            "records wait for it until then",
            ge=10,
            le=900,
        ),
    ] = 120
    state: Annotated[
        str,
        Meta(
            description="what the names of tailrace's own topics begin with: offsets, and what is staged",
            pattern=r"^[A-Za-z0-9._-]{1,60}$",
        ),
    ] = "__tailrace"
