"""Settings of the mysql adaptor: the fields that a pipeline file gives for a MySQL source or sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import Settings, secret
from tailrace.adaptors.contract.settings import Altered, BatchBytes, BatchRows, Create, Linger, Patience

Uri = Annotated[
    str,
    secret(
        "where the database is: mysql://user:password@host:3306/name; without a name all databases of the "
        "server; ?ssl-mode=VERIFY_IDENTITY&ssl-ca=/path for TLS, as the mysql client has it"
    ),
]


class MySQLSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database whose tables are copied, and then followed through its row binlog."""

    uri: Uri
    follow: Annotated[
        bool,
        Meta(
            description="go on with what changes; false: each table is copied once, as it is in one moment, which "
            "needs no binlog"
        ),
    ] = True
    altered: Altered = "copy"
    zero_dates: Annotated[
        Literal["keep", "null"],
        Meta(
            description="dates that no calendar has, as 0000-00-00 and 2024-02-00: 'keep' carries them as text, which "
            "a sink with dates refuses, 'null' makes them null; of a key they are always kept"
        ),
    ] = "keep"
    cascades: Annotated[
        Literal["ask", "copy", "leave"],
        Meta(
            description="tables whose rows a foreign key changes (ON DELETE CASCADE, SET NULL), which no binlog says: "
            "'ask' says which there are, 'copy' copies them again after each change that may have done so, 'leave' "
            "leaves them"
        ),
    ] = "ask"
    batch_rows: BatchRows = 50_000
    batch_bytes: BatchBytes = 8 * 1024 * 1024
    linger: Linger = 0.01
    patience: Patience = 60.0


class MySQLSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database whose tables are kept equal to the source, exactly once."""

    uri: Uri
    schema: Annotated[
        str | None,
        Meta(
            description="the database to write all tables into; if not given, the one of the uri, and without that the "
            "one that each namespace names"
        ),
    ] = None
    create: Create = False
    alter: Annotated[
        bool,
        Meta(
            description="add columns that are missing, and widen those that are wider at the source, where nothing is "
            "lost: int to bigint, varchar(10) to text, …"
        ),
    ] = False
    state: Annotated[
        str,
        Meta(
            description="the database for tailrace's own tables: the offsets, and what is staged",
            pattern="^[a-z_][a-z0-9_]{0,62}$",
        ),
    ] = "tailrace"
