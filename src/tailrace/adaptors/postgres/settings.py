"""Settings of the postgres adaptor: what a pipeline file says of its source and sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import Settings, secret
from tailrace.adaptors.contract.settings import Altered, BatchBytes, BatchRows, Create, Linger, Patience

Uri = Annotated[
    str,
    secret("where the database is: postgresql://user:password@host:5432/name, or key=value pairs as in libpq"),
]


class PostgresSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database whose tables are copied, and then followed by logical replication."""

    uri: Uri
    slot: Annotated[
        str,
        Meta(
            description="the replication slot that keeps the log for this pipeline; one for each pipeline of a server",
            pattern="^[a-z0-9_]{1,63}$",
        ),
    ] = "tailrace"
    follow: Annotated[
        bool,
        Meta(
            description="go on with what changes; false: each table is copied once, as it is in one moment, which "
            "needs neither wal_level = logical nor a slot, and a standby will do"
        ),
    ] = True
    publication: Annotated[
        str | None, Meta(description="which tables are followed, as the server knows it; the slot's name if not given")
    ] = None
    identity: Annotated[
        Literal["ask", "full"],
        Meta(description="tables without a key: 'ask' says what to do, 'full' sets REPLICA IDENTITY FULL on them"),
    ] = "ask"
    altered: Altered = "copy"
    batch_rows: BatchRows = 50_000
    batch_bytes: BatchBytes = 8 * 1024 * 1024
    linger: Linger = 0.01
    discover: Annotated[float, Meta(description="seconds between looks for new and altered tables", ge=0.1)] = 10.0
    patience: Patience = 60.0

    @property
    def published(self) -> str:
        """The name of the publication."""
        return self.publication or self.slot


class PostgresSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database whose tables are kept equal to the source, exactly once."""

    uri: Uri
    schema: Annotated[
        str | None, Meta(description="the schema to write all tables into; the one each namespace names if not given")
    ] = None
    create: Create = False
    alter: Annotated[
        bool,
        Meta(
            description="add columns that are missing, and widen those that are wider at the source, where nothing is "
            "lost: integer to bigint, varchar(10) to text, …"
        ),
    ] = False
    state: Annotated[
        str,
        Meta(
            description="the schema for tailrace's own tables: the offsets, and what is staged",
            pattern="^[a-z_][a-z0-9_]{0,62}$",
        ),
    ] = "tailrace"
