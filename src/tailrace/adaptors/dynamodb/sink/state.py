"""The state of a sink: what it keeps for each pipeline's writers, in a table with the key `pipeline` and
`item`.

    offsets/<writer>               epoch, offsets (JSON), claimed, turn, mark, changed_at
    table/<writer>/<namespace>     table, id, filled

Each transaction of a writer, also one that writes rows, increments `turn` in the writer's offsets item, under the
condition that `turn` is still the one that was read.  So of two concurrent runs only one continues.  `mark` names the
transaction that took the turn, so a writer that got no answer can see whether its own transaction happened.  `id` and
`filled` show what other programs did: a table with another id was created again, and a filled one without items was
emptied.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tailrace.adaptors.dynamodb.service import DynamoService
from tailrace.adaptors.sinks.fencing import Fence
from tailrace.errors import AlreadyThere, NotReady, UnknownTable
from tailrace.storage.aws.dynamodb import create_table
from tailrace.storage.aws.wire import item_from_wire, to_wire
from tailrace.storage.keys import KeySchema

SCHEMA = KeySchema("pipeline", "S", "item", "S")
_json = msgspec.json


class Turn(NamedTuple):
    """A writer's fence, with the number and the mark of its last turn; number 0: nothing is stored yet."""

    fence: Fence
    number: int = 0
    mark: str = ""


class WrittenTable(NamedTuple):
    """A table that a namespace is written to; `filled` if it certainly has items."""

    table: str
    id: str
    filled: bool


class SinkState:
    """The state of one writer of a pipeline."""

    def __init__(self, service: DynamoService, table: str, pipeline: str, writer: str) -> None:
        self._service, self._table, self._pipeline, self._writer = service, table, pipeline, writer

    def read(self) -> Turn:
        """Return the writer's current turn."""
        found = self._service.ask("GetItem", TableName=self._table, Key=self._key(), ConsistentRead=True).get("Item")
        if not found:
            return Turn(Fence())
        item: Any = item_from_wire(found)
        offsets = None if item["offsets"] is None else _json.decode(item["offsets"])
        return Turn(Fence(int(item["epoch"]), offsets, item["claimed"]), int(item["turn"]), item["mark"])

    def next(self, turn: Turn, mark: str, fence: Fence | None = None) -> dict[str, Any]:
        """Return the Put that takes the turn after `turn` in a transaction; it stores `fence` if one is given."""
        kept = fence or turn.fence
        now = {
            "turn": turn.number + 1, "mark": mark, "epoch": kept.epoch, "claimed": kept.claimed,
            "offsets": None if kept.offsets is None else _json.encode(kept.offsets).decode(),
            "changed_at": int(time.time()),
        }  # fmt: skip
        item = {name: to_wire(value) for name, value in now.items()} | self._key()
        if not turn.number:
            return {"TableName": self._table, "Item": item, "ConditionExpression": "attribute_not_exists(turn)"}
        seen = {":seen": to_wire(turn.number)}
        return {
            "TableName": self._table, "Item": item, "ConditionExpression": "turn = :seen",
            "ExpressionAttributeValues": seen,
        }  # fmt: skip

    def _key(self, item: str = "") -> dict[str, Any]:
        return {"pipeline": {"S": self._pipeline}, "item": {"S": item or f"offsets/{self._writer}"}}

    # -- tables
    def tables(self) -> dict[str, WrittenTable]:
        """Return the tables that the writer has written, by namespace."""
        prefix = f"table/{self._writer}/"
        found: dict[str, WrittenTable] = {}
        after: dict[str, Any] = {}
        while True:
            page = self._service.ask(
                "Query",
                TableName=self._table,
                KeyConditionExpression="#p = :p AND begins_with(#i, :i)",
                ExpressionAttributeNames={"#p": "pipeline", "#i": "item"},
                ExpressionAttributeValues={":p": {"S": self._pipeline}, ":i": {"S": prefix}},
                ConsistentRead=True,
                **after,
            )
            for item in map(item_from_wire, page["Items"]):
                one: Any = item
                found[one["item"].removeprefix(prefix)] = WrittenTable(one["table"], one["id"], one["filled"])
            if not page.get("LastEvaluatedKey"):
                return found
            after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def keep_tables(self, written: Mapping[str, WrittenTable]) -> None:
        """Store these tables as written by the writer."""
        for namespace, one in written.items():
            item = {name: to_wire(value) for name, value in one._asdict().items()}
            key = self._key(f"table/{self._writer}/{namespace}")
            self._service.ask("PutItem", TableName=self._table, Item=item | key)

    def forget_tables(self) -> None:
        """Delete the record of the writer's tables; the tables themselves stay."""
        for namespace in self.tables():
            self._service.ask("DeleteItem", TableName=self._table, Key=self._key(f"table/{self._writer}/{namespace}"))


def open_state(service: DynamoService, table: str) -> None:
    """Create the state's table unless it exists; raise `NotReady` if a table of this name has another key."""
    try:
        found = service.wait_active(table)
    except UnknownTable:
        make_table(service, table, SCHEMA)
        return
    if found.schema != SCHEMA:
        raise NotReady(f"the table {table} is not one of tailrace's own; name another by state = …")


def make_table(service: DynamoService, table: str, schema: KeySchema) -> None:
    """Create a DynamoDB table, of the state or of a namespace, and wait until it is active, or wait for the one that
    another process creates at the same time."""
    try:
        with service.guarded("CreateTable", table):
            create_table(service.client, table, schema=schema)
    except AlreadyThere:
        service.wait_active(table)


def order_for(table: str, schema: KeySchema) -> str:
    """Return the AWS command that creates such a table."""
    keys = [(schema.hash, schema.hash_kind, "HASH")]
    if schema.range is not None:
        keys.append((schema.range, schema.range_kind, "RANGE"))
    attributes = " ".join(f"AttributeName={name},AttributeType={kind}" for name, kind, _ in keys)
    roles = " ".join(f"AttributeName={name},KeyType={role}" for name, _, role in keys)
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST --attribute-definitions "
        f"{attributes} --key-schema {roles}"
    )
