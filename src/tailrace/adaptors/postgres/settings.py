"""What the postgres adaptor is made from."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.adaptors.contract import Settings

Uri = Annotated[
    str,
    Meta(
        description="where the database is: postgresql://user:password@host:5432/name, or key=value pairs as in libpq",
        extra={"secret": True},
    ),
]


def _hidden(settings: Settings) -> str:
    shown = {f.name: getattr(settings, f.name) for f in msgspec.structs.fields(type(settings)) if f.name != "uri"}
    return f"{type(settings).__name__}(uri=***, {', '.join(f'{name}={value!r}' for name, value in shown.items())})"


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
    publication: Annotated[
        str | None, Meta(description="which tables are followed, as the server knows it; the slot's name if not given")
    ] = None
    identity: Annotated[
        Literal["ask", "full"],
        Meta(description="tables without a key: 'ask' says what to do, 'full' sets REPLICA IDENTITY FULL on them"),
    ] = "ask"
    altered: Annotated[
        Literal["copy", "leave"],
        Meta(
            description="tables to whose rows ALTER TABLE did what no log says (a default, a new name or type): 'copy' "
            "copies them again, 'leave' leaves each row until it changes"
        ),
    ] = "copy"
    batch_rows: Annotated[int, Meta(description="the most rows in one batch of changes", ge=1)] = 50_000
    batch_bytes: Annotated[int, Meta(description="about the most bytes in one batch", ge=1024)] = 8 * 1024 * 1024
    linger: Annotated[float, Meta(description="seconds between two batches of changes, at least", ge=0)] = 0.01
    discover: Annotated[float, Meta(description="seconds between looks for new and altered tables", ge=0.1)] = 10.0
    patience: Annotated[
        float, Meta(description="seconds to wait for other transactions before saying which are in the way", ge=0)
    ] = 60.0

    __repr__ = _hidden
    __str__ = _hidden

    @property
    def published(self) -> str:
        """The publication's name."""
        return self.publication or self.slot


class PostgresSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database whose tables are kept equal to the source, exactly once."""

    uri: Uri
    schema: Annotated[
        str | None, Meta(description="the schema to write all tables into; the one each namespace names if not given")
    ] = None
    create: Annotated[bool, Meta(description="create tables that are missing")] = False
    alter: Annotated[bool, Meta(description="add columns that are missing")] = False
    state: Annotated[
        str,
        Meta(
            description="the schema for tailrace's own tables: the offsets, and what is staged",
            pattern="^[a-z_][a-z0-9_]{0,62}$",
        ),
    ] = "tailrace"

    __repr__ = _hidden
    __str__ = _hidden
