"""Settings of the opensearch adaptor: what a pipeline's file says about its source and its sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import PathMark, Settings, secret
from tailrace.adaptors.contract.settings import BatchBytes


class SearchSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach a cluster, and as which user."""

    uri: Annotated[
        str,
        secret("where the cluster is: https://user:password@host:9200; several nodes with commas between them"),
    ]
    api_key: Annotated[str | None, secret("of Elasticsearch, encoded, in place of user and password")] = None
    ca: Annotated[
        str | None, PathMark(), Meta(description="the authority of the cluster's certificates, a PEM file")
    ] = None
    timeout: Annotated[float, Meta(description="seconds to wait for one answer", gt=0)] = 60.0


class SearchSource(SearchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Indexes, each a namespace, which are copied once: each shard as it is at one moment."""

    prefix: Annotated[
        str, Meta(description="only indexes that begin with it are copied, and it is taken off to make the namespace")
    ] = ""
    shape: Annotated[
        Literal["document", "columns"],
        Meta(
            description="'document': two columns, the _id and the whole document as JSON, exact for every document; "
            "'columns': a column for each field of the first level, typed as its values are"
        ),
    ] = "document"
    batch_rows: Annotated[int, Meta(description="the most documents in one answer", ge=1, le=10_000)] = 1000
    batch_bytes: BatchBytes = 8 * 1024 * 1024
    keep_alive: Annotated[
        int, Meta(description="minutes for which the cluster keeps a moment between two answers", ge=1)
    ] = 10


class SearchSink(SearchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Indexes that the sink keeps equal to the source: idempotent by id, and nothing older replaces anything newer."""

    index: Annotated[
        str,
        Meta(description="the index or alias of a namespace, in lower case: 'shop-{namespace}'", min_length=1),
    ] = "{namespace}"
    create: Annotated[bool, Meta(description="make indexes that are missing")] = False
    shards: Annotated[int | None, Meta(description="of indexes that are made; the cluster's default if not given")] = (
        None
    )
    replicas: Annotated[
        int | None, Meta(description="of indexes that are made; the cluster's default if not given")
    ] = None
    mappings: Annotated[
        Literal["types", "leave"],
        Meta(
            description="'types': fields that have no mapping get one by their type in the messages; 'leave': "
            "templates and the cluster's own rules decide"
        ),
    ] = "types"
    routing: Annotated[
        str | None,
        Meta(description="a field of the key that says which shard a document is in, for example the tenant"),
    ] = None
    ingest: Annotated[
        str | None, Meta(description="the ingest pipeline that every document goes through; one that drops none")
    ] = None
    refresh: Annotated[
        Literal["later", "wait"],
        Meta(description="'wait': a batch counts once searches see it; 'later': they do a second after that"),
    ] = "later"
    requests: Annotated[int, Meta(description="bulk requests at a time", ge=1, le=32)] = 4
    patience: Annotated[
        float, Meta(description="seconds to send again what a busy cluster refuses (429), before saying so", ge=0)
    ] = 60.0
    state: Annotated[
        str,
        Meta(
            description="the index for tailrace's own documents, the offsets; made if missing",
            pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$",
        ),
    ] = "tailrace-state"
