"""Sessions, tables and buckets on the servers that speak AWS's protocols."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Iterator
from typing import Any

import boto3

from tailrace.storage.aws.dynamodb import DynamoTable, create_table, open_table
from tailrace.storage.aws.session import connect
from tailrace.storage.changes import View
from tests.servers.process import Server


@functools.cache
def session_of(server: Server) -> boto3.Session:
    """A session with the keys that the server knows; made once, since loading the models of AWS takes long."""
    return boto3.Session(aws_access_key_id=server.key, aws_secret_access_key=server.secret, region_name=server.region)


@contextlib.contextmanager
def client(server: Server, service: Any = "dynamodb", **settings: Any) -> Iterator[Any]:
    """A client as tailrace makes it, for the length of a block; `endpoint` may lead through a proxy."""
    made = connect(service, session=session_of(server), **{"endpoint": server.url, **settings})
    try:
        yield made
    finally:
        made.close()


def new_table(server: Server, view: View | None = None) -> str:
    """The name of a new table."""
    name = f"tailrace-{uuid.uuid4().hex}"
    with client(server) as dynamodb:
        create_table(dynamodb, name, view=view)
    return name


@contextlib.contextmanager
def table(server: Server, name: str | None = None, **settings: Any) -> Iterator[DynamoTable]:
    """A handle on a table, a new one if none is named, for the length of a block."""
    name = name or new_table(server)
    connection = {"session": session_of(server), "endpoint": server.url, **settings}
    handle = open_table(name, home=f"s3://bucket/home?table={name}", **connection)
    try:
        yield handle
    finally:
        handle.close()


def new_bucket(server: Server) -> str:
    """The name of a new bucket."""
    name = f"tailrace-{uuid.uuid4().hex}"
    s3 = session_of(server).client("s3", endpoint_url=server.url)
    s3.create_bucket(Bucket=name)
    s3.close()
    return name
