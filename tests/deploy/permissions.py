"""Whether a policy allows a request, as IAM decides it; only what the policies of deploy/aws use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from tests.servers.recording import Request

BEARS: dict[str, Callable[[list[str], list[str]], bool]] = {
    "ForAllValues:StringLike": lambda values, rules: all(any(_like(v, r) for r in rules) for v in values),
    "ForAllValues:StringNotLike": lambda values, rules: all(not any(_like(v, r) for r in rules) for v in values),
    "StringLike": lambda values, rules: any(_like(v, r) for v in values for r in rules),
}
KEYS = {"dynamodb:LeadingKeys", "s3:prefix"}


def _like(value: str, rule: str) -> bool:
    assert "[" not in rule
    return fnmatchcase(value, rule)


def allows(statement: dict[str, Any], request: Request, resource: str) -> bool:
    """Whether one statement allows a request on the resource of this ARN."""
    assert statement["Effect"] == "Allow"
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    if request.action not in actions or not _like(resource, statement["Resource"]):
        return False
    rules = [
        (BEARS[how], key, wanted) for how, one in statement.get("Condition", {}).items() for key, wanted in one.items()
    ]
    assert all(key in KEYS for _, key, _ in rules)
    return all(holds(list(request.keys), wanted) for holds, _, wanted in rules)


def refused(
    statements: Iterable[dict[str, Any]], requests: Iterable[Request], arn: Callable[[Request], str]
) -> set[Request]:
    """The requests that no statement allows."""
    some = list(statements)
    return {one for one in requests if not any(allows(statement, one, arn(one)) for statement in some)}


def unused(
    statements: Iterable[dict[str, Any]], requests: Iterable[Request], arn: Callable[[Request], str]
) -> set[str]:
    """What is allowed and was not asked for: `Sid action`."""
    found = set()
    for statement in statements:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        asked = {one.action for one in requests if allows(statement, one, arn(one))}
        found |= {f"{statement['Sid']} {action.partition(':')[2]}" for action in actions if action not in asked}
    return found
