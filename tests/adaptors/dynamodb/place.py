"""Tables of a test: items by hand, and readers and writers of them."""

from __future__ import annotations

import itertools
import os
from types import TracebackType
from typing import Any

from tailrace.adaptors.dynamodb.settings import DynamoSink, DynamoSource
from tailrace.adaptors.dynamodb.sink.writer import DynamoWriter
from tailrace.adaptors.dynamodb.source.reader import DynamoReader
from tailrace.storage.aws.dynamodb import create_table
from tailrace.storage.aws.wire import item_from_wire, to_wire
from tailrace.storage.changes import View
from tailrace.storage.keys import KeySchema
from tests.servers.aws import client
from tests.servers.process import Server

ID = KeySchema("id", "N", None)
_numbers = itertools.count()


class Place:
    """Tables whose names begin alike, with a client of the test's own."""

    def __init__(self, server: Server) -> None:
        self.server, self.prefix = server, f"t{os.getpid()}-{next(_numbers)}-"
        self._client = client(server)
        self.client: Any = None

    def __enter__(self) -> Place:
        self.client = self._client.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in self.client.list_tables()["TableNames"]:
            if name.startswith(self.prefix):
                self.client.delete_table(TableName=name)
        self._client.__exit__(kind, error, at)

    def table(self, name: str, schema: KeySchema = ID, view: View | None = "both") -> str:
        """A new table; gives its whole name, which is its namespace."""
        create_table(self.client, f"{self.prefix}{name}", schema=schema, view=view)
        return f"{self.prefix}{name}"

    def drop(self, table: str) -> None:
        """Drop a table."""
        self.client.delete_table(TableName=table)

    def put(self, table: str, *items: dict[str, Any]) -> None:
        """Put items."""
        for at in range(0, len(items), 25):
            some = [{"PutRequest": {"Item": wired(item)}} for item in items[at : at + 25]]
            assert not self.client.batch_write_item(RequestItems={table: some}).get("UnprocessedItems")

    def delete(self, table: str, **key: Any) -> None:
        """Delete an item."""
        self.client.delete_item(TableName=table, Key=wired(key))

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items."""
        found: list[Any] = []
        after: dict[str, Any] = {}
        while True:
            page = self.client.scan(TableName=table, ConsistentRead=True, **after)
            found += map(item_from_wire, page["Items"])
            if not page.get("LastEvaluatedKey"):
                return found
            after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def reader(self, **settings: Any) -> DynamoReader:
        """A new reader."""
        return DynamoReader(DynamoSource(**{"endpoint": self.server.url, **settings}))

    def writer(self, **settings: Any) -> DynamoWriter:
        """A new writer, with its state in a table of its own."""
        state = f"{self.prefix}state"
        return DynamoWriter(DynamoSink(**{"endpoint": self.server.url, "state": state, "create": True, **settings}))


def wired(item: dict[str, Any]) -> dict[str, Any]:
    """An item as DynamoDB takes it."""
    return {name: to_wire(value) for name, value in item.items()}
