"""Stores: the table and the objects behind a home's URL."""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.errors import BadHome, HomeError
from tailrace.home.url import DATABASE, folder_of, s3_options, shown
from tailrace.storage.calls import Store

_memories: dict[str, Store] = {}


def store_of(url: str) -> Store:
    """Open the table and the objects behind a home's URL.  Creates a local folder that is missing; a DynamoDB table and
    a bucket must exist."""
    kind, _, _ = url.partition("://")
    if (folder := folder_of(url)) is not None:
        return _on_disk(folder)
    if kind == "memory":
        return _in_memory(url)
    if kind == "s3":
        return _on_s3(url)
    raise BadHome(f"a home is a folder, file://…, memory:// or s3://bucket/prefix?table=NAME, not {shown(url)!r}")


def _on_disk(folder: Path) -> Store:
    from tailrace.storage.local.disk import DiskObjects
    from tailrace.storage.local.mounts import check_local
    from tailrace.storage.local.os_errors import FULL, NO_DESCRIPTOR, explained
    from tailrace.storage.sqlite.database import SqliteDatabase
    from tailrace.storage.sqlite.table import SqliteTable

    try:
        if folder.exists() and not folder.is_dir():
            raise HomeError(f"{folder} is a file; a home is a folder")
        check_local(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL | NO_DESCRIPTOR:
            raise explained(error, f"the folder {folder}") from error
        raise HomeError(
            f"cannot make the folder {folder}: {error.strerror}; choose another home, or its rights"
        ) from error
    except ValueError as error:
        raise BadHome(f"{str(folder)!r} cannot be a path: {error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise HomeError(
            f"the folder {folder} is not writable by this user; `chmod u+wx {folder}`, or choose another home"
        )
    return Store(SqliteTable(SqliteDatabase(folder / DATABASE)), DiskObjects(folder / "objects"))


def _in_memory(url: str) -> Store:
    from tailrace.storage.memory.objects import MemoryObjects
    from tailrace.storage.memory.table import MemoryTable

    name = url.removeprefix("memory://")
    if name in _memories:
        return _memories[name]
    store = Store(MemoryTable(), MemoryObjects())
    if name:
        _memories[name] = store
    return store


def _on_s3(url: str) -> Store:
    from tailrace.storage.aws.buckets import open_bucket
    from tailrace.storage.aws.dynamodb import open_table

    bucket, options = s3_options(url)
    region = options.get("region")
    home = shown(url)
    table = open_table(options["table"], home=home, region=region, endpoint=options.get("table_endpoint"))
    objects = open_bucket(bucket, home=home, region=region, endpoint=options.get("endpoint"))
    return Store(table, objects)
