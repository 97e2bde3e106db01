"""A table in DynamoDB: the items of a home, by `p` (text) and `i` (number)."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from tailrace.errors import (
    AlreadyThere,
    BadInput,
    Closed,
    Conflict,
    HomeError,
    TailraceError,
    Throttled,
    TooLarge,
    Unavailable,
)
from tailrace.storage.aws.dynamostreams import DynamoChanges, stream_of, view_of
from tailrace.storage.aws.session import REFUSED_FOR_NOW, connect, invalid, translated
from tailrace.storage.aws.wire import item_from_wire, key_to_wire
from tailrace.storage.changes import View
from tailrace.storage.evaluation import changed, holds
from tailrace.storage.expressions import key_condition, request_of
from tailrace.storage.keys import ALL, HOME, Bounds, KeySchema
from tailrace.storage.limits import MAX_ACTIONS, check_key, check_write
from tailrace.storage.tables import LAST, Action, Check, Item, Key, Slice

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

ALL_OLD = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


class DynamoTable:
    """The `Table` on DynamoDB, as `open_table` opens it. `home` is the URL that messages name."""

    inline_bytes = 8192
    handy_bytes = 32768
    joins_inline = False

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        home: str = "",
        streams: DynamoDBStreamsClient | None = None,
        schema: KeySchema = HOME,
    ) -> None:
        self._client, self.name, self._home, self._streams, self.schema = client, name, home, streams, schema
        self._lock = threading.Lock()
        self._closed = False
        self.requests: Counter[str] = Counter()
        """How often each operation was called."""

    def get(self, key: Key) -> Item | None:
        """The item, or None."""
        self.schema.check(key)
        item = self._ask("GetItem", Key=key_to_wire(key, self.schema), ConsistentRead=True).get("Item")
        return item_from_wire(item) if item else None

    def query(
        self, p: str, low: int = 0, high: int = LAST, *, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """One page of items, as DynamoDB returns it: 1 MB at most."""
        check_key(Key(p))
        low, high = max(low, 0), min(high, LAST)
        if low > high or (limit is not None and limit < 1):
            self._refuse_if_closed()
            return Slice([], None)
        limited: dict[str, Any] = {} if limit is None else {"Limit": limit}
        answer = self._ask(
            "Query",
            KeyConditionExpression="p = :p AND i BETWEEN :low AND :high",
            ExpressionAttributeValues={":p": {"S": p}, ":low": {"N": str(low)}, ":high": {"N": str(high)}},
            ScanIndexForward=not descending,
            ConsistentRead=True,
            **limited,
        )
        last = answer.get("LastEvaluatedKey")
        return Slice([item_from_wire(item) for item in answer["Items"]], int(last["i"]["N"]) if last else None)

    def find(
        self, hash: Any, bounds: Bounds = ALL, *, after: Any = None, descending: bool = False, limit: int | None = None
    ) -> Slice:
        """Items of one hash whose range keys are within bounds, in order, after the last one of the page before."""
        bounds.check(self.schema)
        parameters = key_condition(hash, bounds, self.schema)
        if after is not None:
            parameters["ExclusiveStartKey"] = key_to_wire(Key(hash, after), self.schema)
        if limit is not None:
            parameters["Limit"] = limit
        answer = self._ask("Query", ScanIndexForward=not descending, ConsistentRead=True, **parameters)
        last = answer.get("LastEvaluatedKey")
        items: list[Item] = [item_from_wire(item) for item in answer["Items"]]
        return Slice(items, self.schema.key_of(item_from_wire(last)).i if last else None)

    def scan(self, after: Key | None = None) -> list[Item]:
        """Items of all hashes after a key; none at the end."""
        begin: dict[str, Any] = {} if after is None else {"ExclusiveStartKey": key_to_wire(after, self.schema)}
        while True:
            answer = self._ask("Scan", ConsistentRead=True, **begin)
            last = answer.get("LastEvaluatedKey")
            if answer["Items"] or not last:
                return [item_from_wire(item) for item in answer["Items"]]
            begin = {"ExclusiveStartKey": last}

    def write(self, *actions: Action) -> tuple[Item | None, ...] | None:
        """Do all actions or none; returns the new item of a single action, and None after a transaction."""
        check_write(actions, self.schema)
        if len(actions) == 1:
            return (self._write_one(actions[0]),)
        self._ask("TransactWriteItems", actions, TransactItems=[self._transacted(action) for action in actions])
        return None

    def sibling(self, name: str, schema: KeySchema) -> DynamoTable:
        """A handle on another table of the same account and region."""
        return DynamoTable(self._client, name, home=self._home, streams=self._streams, schema=schema)

    def names(self) -> list[str]:
        """All tables of the account and region."""
        found: list[str] = []
        after: dict[str, Any] = {}
        while True:
            try:
                page: Any = self._client.list_tables(**after)
            except (BotoCoreError, ClientError) as error:
                raise translated(error, "ListTables", self.name, self._home) from None
            found += page["TableNames"]
            if "LastEvaluatedTableName" not in page:
                return sorted(found)
            after = {"ExclusiveStartTableName": page["LastEvaluatedTableName"]}

    def create(self, view: View | None = None) -> None:
        """Create this table in DynamoDB; `AlreadyThere` if a table has its name."""
        create_table(self._client, self.name, view=view, schema=self.schema)

    def describe(self) -> tuple[KeySchema, View | None] | None:
        """The key schema and the view of the table in DynamoDB; None if there is none."""
        try:
            table: Any = self._client.describe_table(TableName=self.name)["Table"]
        except self._client.exceptions.ResourceNotFoundException:
            return None
        except (BotoCoreError, ClientError) as error:
            raise translated(error, "DescribeTable", self.name, self._home) from None
        kinds = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
        keys = {one["KeyType"]: one["AttributeName"] for one in table["KeySchema"]}
        hash, range = keys["HASH"], keys.get("RANGE")
        schema = KeySchema(hash, kinds[hash], range, kinds[range] if range else "N")
        return schema, view_of(table.get("StreamSpecification", {}))

    def write_with(self, *parts: tuple[DynamoTable, Action]) -> None:
        """Do all actions, on this and other tables of the same account and region, or none."""
        actions = [action for _, action in parts]
        for table in {id(table): table for table, _ in parts}.values():
            check_write([action for one, action in parts if one is table], table.schema)
        if len(actions) > MAX_ACTIONS:
            raise TooLarge(f"a write takes 1 to {MAX_ACTIONS} actions, not {len(actions)}")
        self._ask("TransactWriteItems", actions, TransactItems=[table._transacted(action) for table, action in parts])

    def changes(self) -> DynamoChanges:
        """The changes of the table; they can be read once capture is on."""
        self._refuse_if_closed()
        if self._streams is None:
            raise BadInput(f"table {self.name!r} was made without a client for its streams")
        return DynamoChanges(self._streams, self._client, self.name, home=self._home, schema=self.schema)

    def capture(self, view: View) -> DynamoChanges:
        """Switch change capture on, for good; returns the changes from then on."""
        changes = self.changes()
        changes.capture(view)
        return changes

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        self._client.close()
        if self._streams is not None:
            self._streams.close()

    def _write_one(self, action: Action) -> Item | None:
        kind, request = request_of(action, self.schema)
        match kind:
            case "ConditionCheck":
                return self._check(action)
            case "Put":
                self._ask("PutItem", (action,), **request, **ALL_OLD)
                return changed(None, action, self.schema)
            case "Update":
                answer = self._ask("UpdateItem", (action,), **request, **ALL_OLD, ReturnValues="ALL_NEW")
                return item_from_wire(answer["Attributes"])
            case "Delete":
                self._ask("DeleteItem", (action,), **request, **ALL_OLD)
                return None

    def _check(self, action: Action) -> Item | None:
        item = self.get(action.key)
        if not holds(item, action.when):
            raise _conflict(action, 0, item)
        return None if isinstance(action, Check) else item

    def _transacted(self, action: Action) -> dict[str, Any]:
        kind, request = request_of(action, self.schema)
        return {kind: {"TableName": self.name, **request, **ALL_OLD}}

    def _ask(self, operation: str, actions: Sequence[Action] = (), **parameters: Any) -> Any:
        self._refuse_if_closed()
        with self._lock:
            self.requests[operation] += 1
        if operation != "TransactWriteItems":
            parameters["TableName"] = self.name
        try:
            return getattr(self._client, xform_name(operation))(**parameters)
        except (BotoCoreError, ClientError) as error:
            failure = refused(error, actions, self.name) or translated(error, operation, self.name, self._home)
            # AWS's message about a bad signature repeats its parts, including a session token.
            raise failure from (None if isinstance(failure, HomeError) else error)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed(f"table {self.name!r} was closed")


def refused(error: BotoCoreError | ClientError, actions: Sequence[Action], table: str) -> TailraceError | None:
    """The error that an answer of DynamoDB means for one of the actions; None if it means none."""
    if not isinstance(error, ClientError):
        return None
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return _conflict(actions[0], 0, _stored(error.response))
    if code == "TransactionCanceledException":
        return _cancelled(error, actions, table)
    return None


def _cancelled(error: ClientError, actions: Sequence[Action], table: str) -> TailraceError:
    reasons = _reasons(error)
    codes = [reason.get("Code", "None") for reason in reasons]
    what = f"TransactWriteItems on table {table!r}"
    if "ConditionalCheckFailed" in codes:
        index = codes.index("ConditionalCheckFailed")
        return _conflict(actions[index], index, _stored(reasons[index]))
    if "ValidationError" in codes:
        return invalid(reasons[codes.index("ValidationError")].get("Message", ""), what, table)
    named = ", ".join(sorted({code for code in codes if code != "None"}))
    if REFUSED_FOR_NOW.issuperset(set(codes) - {"None"}):
        return Throttled(f"{what}: refused for now ({named})")
    return Unavailable(f"{what}: cancelled ({named})")


def _reasons(error: ClientError) -> list[Any]:
    if found := error.response.get("CancellationReasons"):
        return list(found)
    named = re.search(r"\[([\w, ]+)]", error.response["Error"].get("Message", ""))
    return [{"Code": code} for code in (named.group(1).split(", ") if named else [])]


def _stored(answer: Any) -> Item | None:
    return item_from_wire(answer["Item"]) if answer.get("Item") else None


def _conflict(action: Action, index: int, item: Item | None) -> Conflict:
    there = "is there" if item is not None else "is not there"
    what = f"{type(action).__name__} of {action.key.p!r}/{action.key.i}, which {there}, needs {action.when}"
    return Conflict(what, index=index, item=item)


def open_table(name: str, *, home: str = "", **connection: Any) -> DynamoTable:
    """A handle on an existing table; `connection` is as `aws.connect` takes it."""
    streams = connect("dynamodbstreams", **connection)
    return DynamoTable(connect("dynamodb", **connection), name, home=home, streams=streams)


def create_table(
    client: DynamoDBClient,
    name: str,
    *,
    view: View | None = None,
    schema: KeySchema = HOME,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make a table for a home, or with another key schema for a model, paid by request, with a stream of changes if a
    view is given; waits until the table exists."""
    keys = [(schema.hash, schema.hash_kind, "HASH")]
    if schema.range is not None:
        keys.append((schema.range, schema.range_kind, "RANGE"))
    request: Any = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": kind} for key, kind, _ in keys],
        "KeySchema": [{"AttributeName": key, "KeyType": role} for key, _, role in keys],
    }
    if view is not None:
        request["StreamSpecification"] = stream_of(view)
    try:
        client.create_table(**request)
        while client.describe_table(TableName=name)["Table"]["TableStatus"] != "ACTIVE":
            sleep(0.5)
    except client.exceptions.ResourceInUseException:
        raise AlreadyThere(f"there is a table {name!r} already") from None
    except (BotoCoreError, ClientError) as error:
        raise translated(error, "CreateTable", name, "") from None
