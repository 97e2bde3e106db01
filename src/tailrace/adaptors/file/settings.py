"""Settings of the file adaptor: what a pipeline's file says about its source and its sink."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from tailrace.adaptors.contract import Located, Settings

Format: TypeAlias = Literal["jsonl", "csv", "parquet"]


class FileSource(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files to copy, and then to follow as they grow and new ones come."""

    path: Annotated[Located, Meta(description="a file, a folder, or a pattern such as logs/*.jsonl")]
    format: Annotated[
        Format | None, Meta(description="of all files; if not given each file's name says it: .jsonl, .csv, .parquet")
    ] = None
    as_namespace: Annotated[
        str | None,
        Meta(description="the namespace of all files; if not given the file's name without its end, or its folder's"),
    ] = None
    keys: Annotated[tuple[str, ...], Meta(description="the fields that make up the id; none: all fields together")] = ()
    follow: Annotated[
        bool, Meta(description="go on as files grow; false: they are complete, also a last line without its end")
    ] = True
    poll_seconds: Annotated[float, Meta(description="seconds between looks for something new", ge=0.01, le=1)] = 0.2
    columns: Annotated[
        tuple[str, ...], Meta(description="csv: the names of the columns, for files without a line of them")
    ] = ()
    types: Annotated[
        dict[str, str], Meta(description='csv: what columns hold if not text, such as {total = "double"}, as in Arrow')
    ] = {}
    delimiter: Annotated[str, Meta(description="csv: what is between two values", min_length=1, max_length=1)] = ","


class FileSink(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder to which the sink writes batches of messages; a reader sees each batch whole or not at all."""

    path: Annotated[Located, Meta(description="the folder; all processes of a cluster must see it")]
    format: Annotated[Format, Meta(description="of the files")] = "parquet"
    keep: Annotated[
        Literal["changes", "state"],
        Meta(
            description="every change, in files that are only added; or the current rows, in one Parquet file for each "
            "namespace that is replaced as a whole"
        ),
    ] = "changes"
    every: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(
            description="seconds, at least, between two files of a namespace while little is pending (10); with keep = "
            "state between two merges (60)"
        ),
    ] = None
    plain: Annotated[bool, Meta(description="only the documents, without _op and _timestamp; deletes are left out")] = (
        False
    )
    compression: Annotated[Literal["zstd", "snappy", "gzip", "none"], Meta(description="of parquet files")] = "zstd"
