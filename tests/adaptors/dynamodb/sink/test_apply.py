"""What DynamoDB answers to transactions, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tailrace.adaptors.dynamodb.pace import Pace
from tailrace.adaptors.dynamodb.sink.apply import Applier, Target, Work
from tailrace.errors import Rejected

TARGET = Target("s.users", "users")


class Refusing:
    """A service without items that refuses the last action of every transaction."""

    where = "nowhere"

    @property
    def client(self) -> Refusing:
        return self

    def insist(self, ask: Any, doing: str) -> Any:
        return ask()

    def ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        return {}

    def transact_write_items(self, *, TransactItems: list[Any], **_: Any) -> None:
        reasons = [{"Code": "None"}] * (len(TransactItems) - 1) + [{"Code": "ValidationError", "Message": "no"}]
        error = {"Code": "TransactionCanceledException", "Message": "cancelled"}
        raise ClientError({"Error": error, "CancellationReasons": reasons}, "TransactWriteItems")  # type: ignore[typeddict-unknown-key]


def test_the_refused_row_is_named_though_items_before_it_are_missing() -> None:
    """A change of a part of an item that is missing is no action of the transaction."""
    change = Work(TARGET, {"k": {"id": {"S": "missing"}}, "s": {"n": {"N": "1"}}, "u": []})
    put = Work(TARGET, {"k": {"id": {"S": "refused"}}, "d": {"id": {"S": "refused"}}})
    delete = Work(TARGET, {"k": {"id": {"S": "other"}}})
    with pytest.raises(Rejected, match="refused") as caught:
        Applier(Refusing(), Pace(0)).transact([change, delete, put], {})  # type: ignore[arg-type]
    assert caught.value.id == "refused"
