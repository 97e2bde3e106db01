"""Settings of the dynamodb adaptor: the fields that a pipeline file gives for a DynamoDB source or sink.

Credentials are not among them: the SDK finds them in the environment, a profile or a role.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import Settings

Region = Annotated[
    str | None, Meta(description="the AWS region; if not given, that of AWS_REGION or of the profile in use")
]
Endpoint = Annotated[
    str | None, Meta(description="the URL of a server that speaks DynamoDB's protocol, in place of AWS")
]
Profile = Annotated[
    str | None,
    Meta(description="the profile of the AWS configuration to use; every host that runs tasks needs it"),
]


class DynamoSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables that are copied by a parallel scan, and then followed through their streams."""

    region: Region = None
    endpoint: Endpoint = None
    profile: Profile = None
    shape: Annotated[
        Literal["document", "columns"],
        Meta(
            description="'document': the attributes of the key, and the whole item as JSON, exact for every item; "
            "'columns': a column for each attribute, typed as its values are"
        ),
    ] = "document"
    follow: Annotated[bool, Meta(description="go on with what changes, which needs a stream; false: copied once")] = (
        True
    )
    read_units: Annotated[
        float,
        Meta(
            description="read capacity units a second that each task of the copy may use; 0: as many as it gets", ge=0
        ),
    ] = 0.0
    batch_rows: Annotated[int, Meta(description="the most changes in one batch", ge=1)] = 10_000

    @property
    def place(self) -> tuple[str | None, str | None, str | None]:
        """Region, endpoint and profile: the arguments of `DynamoService`."""
        return self.region, self.endpoint, self.profile


class DynamoSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables that are kept equal to the source, in transactions that also store the offsets."""

    region: Region = None
    endpoint: Endpoint = None
    profile: Profile = None
    prefix: Annotated[str, Meta(description="what the name of every table begins with, before its namespace")] = ""
    create: Annotated[bool, Meta(description="create tables that are missing, paid by request")] = False
    write: Annotated[
        Literal["transactions", "batches"],
        Meta(
            description="'transactions': exactly once, at twice the write capacity; 'batches': faster, idempotent by "
            "key"
        ),
    ] = "transactions"
    write_units: Annotated[
        float, Meta(description="write capacity units a second, at most; 0: as many as it gets", ge=0)
    ] = 0.0
    state: Annotated[
        str,
        Meta(
            description="the table for tailrace's own items, the offsets; made if missing",
            pattern="^[a-zA-Z0-9_.-]{3,255}$",
        ),
    ] = "tailrace-state"

    @property
    def place(self) -> tuple[str | None, str | None, str | None]:
        """Region, endpoint and profile: the arguments of `DynamoService`."""
        return self.region, self.endpoint, self.profile
