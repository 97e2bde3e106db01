"""The service: DynamoDB in one region, or another server that speaks its protocol."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import boto3
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound

from tailrace.adaptors.dynamodb.errors import NO_REGION, failed
from tailrace.errors import BadSetting, HomeError, NotReady, Throttled, Unavailable
from tailrace.storage.aws.dynamostreams import DynamoChanges, view_of
from tailrace.storage.aws.session import connect, region_of
from tailrace.storage.changes import View
from tailrace.storage.keys import KeySchema
from tailrace.streams.patience import Patience

PATIENCE_SECONDS = 30.0
"""How long a throttled request is repeated, with growing pauses, before the caller gets an error."""
POLL_SECONDS = 0.2


class TableDescription(NamedTuple):
    """DynamoDB's description of a table."""

    name: str
    id: str
    """The table's id: a table that was dropped and created again has another one."""
    schema: KeySchema
    view: View | None
    """What the table's stream carries; None: the table has no stream."""
    stream: str
    items: int
    bytes: int
    active: bool


class DynamoService:
    """DynamoDB in the region of the settings.  It makes its clients at the first request; any thread may use it."""

    def __init__(self, region: str | None, endpoint: str | None, profile: str | None) -> None:
        self._region, self._endpoint, self._profile = region, endpoint, profile
        self.patience = Patience(PATIENCE_SECONDS)

    @cached_property
    def _session(self) -> boto3.Session:
        try:
            return boto3.Session(profile_name=self._profile)
        except ProfileNotFound:
            raise BadSetting(
                f"the AWS configuration has no profile {self._profile!r}; `aws configure list-profiles`"
            ) from None

    @property
    def where(self) -> str:
        """The endpoint or the region, for messages: "at http://…" or "in eu-central-1"."""
        return f"at {self._endpoint}" if self._endpoint else f"in {self._region or region_of(self._session)}"

    def _client(self, service: Any) -> Any:
        try:
            return connect(service, session=self._session, region=self._region, endpoint=self._endpoint)
        except HomeError as error:
            told = str(error)
            raise NotReady(NO_REGION if "no AWS region" in told else told) from None

    @cached_property
    def client(self) -> Any:
        """The SDK's client of DynamoDB."""
        return self._client("dynamodb")

    @cached_property
    def streams(self) -> Any:
        """The SDK's client of DynamoDB Streams."""
        return self._client("dynamodbstreams")

    def ask(self, operation: str, table: str = "", **parameters: Any) -> Any:
        """Send one request and return its answer; raise tailrace's errors, in whose texts `table` names the table."""
        try:
            return getattr(self.client, xform_name(operation))(**parameters)
        except (BotoCoreError, ClientError) as error:
            raise failed(error, self.where, operation, table or parameters.get("TableName", "")) from None

    @contextlib.contextmanager
    def guarded(self, operation: str, table: str) -> Iterator[None]:
        """Translate the errors of tailrace's own storage code in a block into errors about this table."""
        try:
            yield
        except HomeError as error:
            raise NotReady(f"DynamoDB {self.where}, {operation} of {table}: {error}") from None

    def insist(self, request: Callable[[], Any], what: str) -> Any:
        """Make a request, and repeat it with growing pauses while it is throttled.

        Raise `Unavailable` after `PATIENCE_SECONDS`."""
        return self.patience.ask(request, what, (Throttled,))

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        found: list[str] = []
        after: dict[str, Any] = {}
        while True:
            page = self.insist(lambda: self.ask("ListTables", **after), "listing tables")  # noqa: B023
            found += page["TableNames"]
            if "LastEvaluatedTableName" not in page:
                return sorted(found)
            after = {"ExclusiveStartTableName": page["LastEvaluatedTableName"]}

    def describe(self, table: str) -> TableDescription:
        """Return the description of a table; raise `NotThere` if the table does not exist."""
        said = self.insist(lambda: self.ask("DescribeTable", TableName=table), f"describing {table}")["Table"]
        kinds = {one["AttributeName"]: one["AttributeType"] for one in said["AttributeDefinitions"]}
        keys = {one["KeyType"]: one["AttributeName"] for one in said["KeySchema"]}
        hash, range = keys["HASH"], keys.get("RANGE")
        schema = KeySchema(hash, kinds[hash], range, kinds[range] if range else "N")
        return TableDescription(
            table,
            str(said.get("TableId") or _made_at(said)),
            schema,
            view_of(said.get("StreamSpecification") or {}),
            said.get("LatestStreamArn") or "",
            said.get("ItemCount") or 0,
            said.get("TableSizeBytes") or 0,
            said.get("TableStatus", "ACTIVE") in ("ACTIVE", "UPDATING"),
        )

    def changes(self, table: str, schema: KeySchema) -> DynamoChanges:
        """Return the stream of a table's changes."""
        return DynamoChanges(self.streams, self.client, table, schema=schema)

    def wait_active(self, table: str, seconds: float = 60.0) -> TableDescription:
        """Wait until a table is active, and return its description; raise `Unavailable` if that takes too long."""
        deadline = time.monotonic() + seconds
        while not (found := self.describe(table)).active:
            if time.monotonic() > deadline:
                raise Unavailable(f"the table {table} is not active after {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        return found

    def close(self) -> None:
        """Close the clients; a later request makes new ones."""
        for name in ("client", "streams"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def _made_at(said: Any) -> str:
    """Return when a table was created, which stands for its id on servers that give none."""
    moment = said.get("CreationDateTime")
    return str(moment.timestamp() if hasattr(moment, "timestamp") else moment or "")
