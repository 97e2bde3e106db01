"""Settings of the mongodb adaptor: the fields that a pipeline file gives for a MongoDB source or sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import Settings, secret
from tailrace.adaptors.contract.settings import BatchBytes

Uri = Annotated[
    str,
    secret(
        "where the replica set is: mongodb://user:password@host:27017/shop?replicaSet=rs0; a name after "
        "the slash is the one database that is read, without it all are"
    ),
]


class MongoSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collections of a replica set that are copied, and then followed through a change stream."""

    uri: Uri
    shape: Annotated[
        Literal["document", "columns"],
        Meta(
            description="'document': two columns, the _id as text and the whole document as Extended JSON, exact for "
            "every document; 'columns': a column for each field of the first level, typed as its values are"
        ),
    ] = "document"
    follow: Annotated[
        bool,
        Meta(
            description="go on with what changes; false: copied once, for which a server without a replica set will do"
        ),
    ] = True
    images: Annotated[
        bool,
        Meta(
            description="deletes carry the document that was deleted, from collections that keep pre-images "
            "(changeStreamPreAndPostImages, MongoDB 6.0 and newer)"
        ),
    ] = True
    batch_rows: Annotated[int, Meta(description="the most documents in one batch", ge=1)] = 10_000
    batch_bytes: BatchBytes = 8 * 1024 * 1024


class MongoSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Collections that are kept equal to the source: exactly once on a replica set, else idempotent by _id."""

    uri: Uri
    database: Annotated[
        str | None,
        Meta(description="the database to write all collections into; the one each namespace names if not given"),
    ] = None
    state: Annotated[
        str,
        Meta(
            description="the database for tailrace's own collections: the offsets, and what is staged",
            pattern=r"^[A-Za-z0-9_-]{1,38}$",
        ),
    ] = "tailrace"
