"""Applying operations: writes chunks of operations, in transactions that also take the writer's turn, or in batches.

A chunk fits into one transaction and has no key twice.  An operation that changes a part of an item becomes a write of
the whole item: the applier reads the item first.  Meanwhile only the writer whose turn it is changes that item."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from tailrace.adaptors.dynamodb.errors import code_of, failed, message_of
from tailrace.adaptors.dynamodb.pace import Pace
from tailrace.adaptors.dynamodb.service import DynamoService
from tailrace.adaptors.dynamodb.sink.operations import Operation
from tailrace.adaptors.rows.removal import pointer, take_away
from tailrace.errors import Conflict, Rejected, TailraceError, Throttled, Unavailable
from tailrace.storage.aws.session import REFUSED_FOR_NOW
from tailrace.storage.limits import MAX_ACTIONS, MAX_ITEM_BYTES

MAX_CHUNK_OPERATIONS = MAX_ACTIONS - 1
MAX_CHUNK_BYTES = 3 * 1024 * 1024 + 512 * 1024
MAX_BATCH_OPERATIONS, BATCHES_AT_ONCE = 25, 8
_pack = msgspec.msgpack.encode


class Target(NamedTuple):
    """The table that operations of a namespace go to."""

    namespace: str
    table: str


class Work(NamedTuple):
    """One operation and its target."""

    target: Target
    operation: Operation

    @property
    def key(self) -> bytes:
        """The table and the key of the item as bytes, equal for all operations on one item."""
        return self.target.table.encode() + b"\0" + _pack(self.operation["k"], order="sorted")


def chunks(work: Iterable[Work], most: int) -> Iterator[list[Work]]:
    """Yield operations in their order, in chunks of at most `most` and `MAX_CHUNK_BYTES`, which have no key twice."""
    chunk: list[Work] = []
    keys: set[bytes] = set()
    size = 0
    for one in work:
        bytes = _size(one.operation)
        if chunk and (len(chunk) >= most or size + bytes > MAX_CHUNK_BYTES or one.key in keys):
            yield chunk
            chunk, keys, size = [], set(), 0
        chunk.append(one)
        keys.add(one.key)
        size += bytes
    if chunk:
        yield chunk


def _size(operation: Operation) -> int:
    """Return an upper bound of an item's size after an operation: the encoded operation is never smaller than the item.

    For a change of a part of an item it is the largest size that an item can have."""
    return MAX_ITEM_BYTES if "s" in operation else len(_pack(operation))


class Applier:
    """Applies chunks of operations."""

    def __init__(self, service: DynamoService, pace: Pace) -> None:
        self._service, self._pace = service, pace

    # -- in a transaction
    def transact(self, work: Sequence[Work], turn: Mapping[str, Any]) -> None:
        """Write a chunk and take a turn in one transaction; raise `Conflict` if another run has taken the turn.

        `Rejected`: DynamoDB refuses a row."""
        whole = list(self._whole(work))
        actions = [{"Put": turn}, *map(_action, whole)]
        token = secrets.token_hex(16)

        def ask() -> Any:
            try:
                return self._service.client.transact_write_items(
                    TransactItems=actions, ClientRequestToken=token, ReturnConsumedCapacity="TOTAL"
                )
            except (BotoCoreError, ClientError) as error:
                raise self._cancelled(error, whole or work) from None

        answer = self._service.insist(ask, "writing a batch")
        self._pace.used(*(answer.get("ConsumedCapacity") or ()))

    def _cancelled(self, error: BotoCoreError | ClientError, work: Sequence[Work]) -> TailraceError:
        reasons: Any = (getattr(error, "response", None) or {}).get("CancellationReasons") or []
        codes = [reason.get("Code") or "None" for reason in reasons]
        if code_of(error) == "TransactionCanceledException":
            if codes and codes[0] == "ConditionalCheckFailed":
                return Conflict("it was another's turn")
            for at, code in enumerate(codes):
                if code in ("ValidationError", "ItemCollectionSizeLimitExceeded"):
                    return _rejected(work[at - 1 : at] or work, f"{code}: {reasons[at].get('Message', '')}")
            if REFUSED_FOR_NOW.issuperset(set(codes) - {"None"}):
                return Throttled(f"writing a batch: refused for now ({', '.join(sorted(set(codes) - {'None'}))})")
            return Unavailable(f"writing a batch: cancelled ({', '.join(codes)}): {message_of(error)}")
        if code_of(error) == "ValidationException":
            return _rejected(work, message_of(error))
        if code_of(error) == "TransactionInProgressException":
            return Throttled("writing a batch: the same transaction is still being carried out")
        return failed(error, self._service.where, "TransactWriteItems", _names(work))

    # -- in batches
    def write(self, work: Sequence[Work]) -> None:
        """Write a chunk without a transaction, by several requests at a time; send unprocessed items again."""
        whole = list(self._whole(work))
        parts = [whole[at : at + MAX_BATCH_OPERATIONS] for at in range(0, len(whole), MAX_BATCH_OPERATIONS)]
        with ThreadPoolExecutor(BATCHES_AT_ONCE, "tailrace-dynamodb") as pool:
            for consumed in pool.map(self._batch, parts):
                self._pace.used(*consumed)

    def _batch(self, work: Sequence[Work]) -> list[Any]:
        left: dict[str, list[Any]] = {}
        for one in work:
            left.setdefault(one.target.table, []).append(_request(one))
        consumed: list[Any] = []

        def ask() -> None:
            nonlocal left
            try:
                answer = self._service.client.batch_write_item(RequestItems=left, ReturnConsumedCapacity="TOTAL")
            except (BotoCoreError, ClientError) as error:
                if code_of(error) == "ValidationException":
                    raise _rejected(work, message_of(error)) from None
                raise failed(error, self._service.where, "BatchWriteItem", _names(work)) from None
            consumed.extend(answer.get("ConsumedCapacity") or ())
            left = answer.get("UnprocessedItems") or {}
            if left:
                raise Throttled(f"writing a batch: {sum(map(len, left.values()))} items were left for later")

        self._service.insist(ask, "writing a batch")
        return consumed

    # -- changes of a part of an item
    def _whole(self, work: Sequence[Work]) -> Iterator[Work]:
        """Yield the operations; turn a change of a part into a whole item, or leave it out if the item is missing."""
        partial = [one for one in work if "s" in one.operation]
        there = self._read(partial) if partial else {}
        for one in work:
            operation = one.operation
            if "s" not in operation:
                yield one
            elif (before := there.get(one.key)) is not None:
                item = {**before, **operation["s"]}
                _without(item, operation["u"])
                yield Work(one.target, {"k": operation["k"], "d": item})

    def _read(self, work: Sequence[Work]) -> dict[bytes, dict[str, Any]]:
        found: dict[bytes, dict[str, Any]] = {}
        for one in work:
            key = one.operation["k"]
            answer = self._asked("GetItem", TableName=one.target.table, Key=key, ConsistentRead=True)
            if item := answer.get("Item"):
                found[one.key] = item
        return found

    def _asked(self, operation: str, **parameters: Any) -> Any:
        ask: Callable[[], Any] = lambda: self._service.ask(operation, **parameters)  # noqa: E731
        return self._service.insist(ask, operation)


def _without(item: dict[str, Any], paths: Sequence[Sequence[str]]) -> None:
    """Remove attributes, also nested ones, from an item in DynamoDB's own form."""
    for path in paths:
        take_away(item, [pointer(*_steps(path))])


def _steps(path: Sequence[str]) -> list[str]:
    """Return the path to a nested attribute in DynamoDB's own form, which has an "M" between two names."""
    return [step for n, name in enumerate(path) for step in (("M", name) if n else (name,))]


def _action(one: Work) -> dict[str, Any]:
    if "d" in one.operation:
        return {"Put": {"TableName": one.target.table, "Item": one.operation["d"]}}
    return {"Delete": {"TableName": one.target.table, "Key": one.operation["k"]}}


def _request(one: Work) -> dict[str, Any]:
    if "d" in one.operation:
        return {"PutRequest": {"Item": one.operation["d"]}}
    return {"DeleteRequest": {"Key": one.operation["k"]}}


def _rejected(work: Sequence[Work], why: str) -> Rejected:
    """Return the error for rows that DynamoDB refuses, with the row's id if it is a single one."""
    namespace = work[0].target.namespace
    id = "" if len(work) > 1 else "/".join(str(next(iter(v.values()))) for v in work[0].operation["k"].values())
    return Rejected(f"{namespace}: DynamoDB refuses {id or 'one of some rows'}: {why}", namespace=namespace, id=id)


def _names(work: Sequence[Work]) -> str:
    return ", ".join(sorted({one.target.table for one in work})[:3])
