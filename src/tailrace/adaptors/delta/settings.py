"""Settings of the delta adaptor: what a pipeline's file says about its sink."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tailrace.adaptors.contract import Located, Settings, secret


class DeltaSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder or bucket with a Delta table for each namespace."""

    path: Annotated[
        Located,
        Meta(
            description="a folder that all processes see, or s3://bucket/prefix, gs://…, az://…; the table of a "
            "namespace is a folder in it, called after that"
        ),
    ]
    keep: Annotated[
        Literal["state", "changes"],
        Meta(description="the current rows, merged by their id; or every change, appended with op, place and time"),
    ] = "state"
    every: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="seconds, at least, between two commits while little is pending (10; with keep = state 60)"),
    ] = None
    plain: Annotated[
        bool, Meta(description="keep = changes: only the documents, without _op and the like; deletes are left out")
    ] = False
    alter: Annotated[
        bool, Meta(description="give tables the columns that they lack, and wider types where nothing is lost")
    ] = True
    partition_by: Annotated[
        tuple[str, ...], Meta(description="columns by which new tables are partitioned, those that have all of them")
    ] = ()
    compact_every: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="commits to a table after which its small files are put together")
    ] = 20
    vacuum_every: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="commits after which files that no version needs are removed")
    ] = 100
    retain_hours: Annotated[
        Annotated[int, Meta(ge=1)], Meta(description="hours that earlier versions of a table can still be read")
    ] = 168
    properties: Annotated[
        dict[str, str], Meta(description='properties of new tables, such as {"delta.enableChangeDataFeed" = "true"}')
    ] = {}
    storage_options: Annotated[
        dict[str, str],
        secret(
            "of the object storage, as the library deltalake has them: AWS_REGION, AWS_ENDPOINT_URL, "
            "AWS_ACCESS_KEY_ID, …; what is missing is found as AWS's own tools find it"
        ),
    ] = {}
