"""What actions look like as DynamoDB's requests, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import BadInput, TooLarge
from tailrace.storage.expressions import MAX_EXPRESSION_BYTES, request_of
from tailrace.storage.tables import (
    Absent,
    Action,
    Add,
    Append,
    AtMost,
    Change,
    Check,
    Condition,
    Delete,
    Equals,
    Exists,
    Include,
    Key,
    Less,
    NotIn,
    Put,
    Remove,
    Set,
    Update,
)
from tailrace.testing.tablecases import label

KEY = Key("head", 7)
WIRE_KEY = {"p": {"S": "head"}, "i": {"N": "7"}}

CONDITIONS: list[tuple[Condition, str, dict[str, str], dict[str, Any]]] = [
    (Absent("a"), "attribute_not_exists(#0)", {"#0": "a"}, {}),
    (Exists("a"), "attribute_exists(#0)", {"#0": "a"}, {}),
    (Exists(("a", "b", "a")), "attribute_exists(#0.#1.#0)", {"#0": "a", "#1": "b"}, {}),
    (Equals("a", None), "#0 = :0", {"#0": "a"}, {":0": {"NULL": True}}),
    (Equals("a", True), "#0 = :0", {"#0": "a"}, {":0": {"BOOL": True}}),
    (Equals(("nx", "3"), 5), "#0.#1 = :0", {"#0": "nx", "#1": "3"}, {":0": {"N": "5"}}),
    (AtMost("gc", 9), "#0 <= :0", {"#0": "gc"}, {":0": {"N": "9"}}),
    (Less("b", 4096), "#0 < :0", {"#0": "b"}, {":0": {"N": "4096"}}),
    (NotIn("ids", "x"), "NOT contains(#0, :0)", {"#0": "ids"}, {":0": {"S": "x"}}),
]

CHANGES: list[tuple[Change, str, dict[str, str], dict[str, Any]]] = [
    (Set("a", b"\0"), "SET #0 = :0", {"#0": "a"}, {":0": {"B": b"\0"}}),
    (Set(("a", "b"), {}), "SET #0.#1 = :0", {"#0": "a", "#1": "b"}, {":0": {"M": {}}}),
    (Add("a", -1), "ADD #0 :0", {"#0": "a"}, {":0": {"N": "-1"}}),
    (Add(("nx", "3"), 2), "SET #0.#1=#0.#1+:0", {"#0": "nx", "#1": "3"}, {":0": {"N": "2"}}),
    (Append("e", ("x",)), "SET #0 = list_append(#0, :0)", {"#0": "e"}, {":0": {"L": [{"S": "x"}]}}),
    (Include("ids", frozenset({"b", "a"})), "ADD #0 :0", {"#0": "ids"}, {":0": {"SS": ["a", "b"]}}),
    (Remove(("a", "b")), "REMOVE #0.#1", {"#0": "a", "#1": "b"}, {}),
]


def without_empty(request: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if value}


@pytest.mark.parametrize(("condition", "text", "names", "values"), CONDITIONS, ids=lambda v: label(v)[:40])
def test_a_condition(condition: Condition, text: str, names: dict[str, str], values: dict[str, Any]) -> None:
    expected = {
        "Key": WIRE_KEY,
        "ConditionExpression": f"attribute_exists(p) AND {text}",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    assert request_of(Check(KEY, (condition,))) == ("ConditionCheck", without_empty(expected))
    assert request_of(Delete(KEY, (condition,))) == ("Delete", without_empty(expected))


@pytest.mark.parametrize(("change", "text", "names", "values"), CHANGES, ids=lambda v: label(v)[:40])
def test_a_change(change: Change, text: str, names: dict[str, str], values: dict[str, Any]) -> None:
    expected = {
        "Key": WIRE_KEY,
        "UpdateExpression": text,
        "ConditionExpression": "attribute_exists(p)",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    assert request_of(Update(KEY, (change,))) == ("Update", without_empty(expected))


def test_an_append_of_a_log() -> None:
    changes = (Append("e", ["ref"]), Add(("nx", "0"), 3), Add("k", 1), Include("ids", frozenset({"id"})), Remove("x"))
    when = (Equals("page", 4), AtMost("gc", 2), Less("b", 4096), NotIn("ids", "id"))
    assert request_of(Update(KEY, changes, when)) == (
        "Update",
        {
            "Key": WIRE_KEY,
            "UpdateExpression": "SET #0 = list_append(#0, :0), #1.#2=#1.#2+:1 ADD #3 :2, #4 :3 REMOVE #5",
            "ConditionExpression": (
                "attribute_exists(p) AND #6 = :4 AND #7 <= :5 AND #8 < :6 AND NOT contains(#4, :7)"
            ),
            "ExpressionAttributeNames": {
                "#0": "e",
                "#1": "nx",
                "#2": "0",
                "#3": "k",
                "#4": "ids",
                "#5": "x",
                "#6": "page",
                "#7": "gc",
                "#8": "b",
            },
            "ExpressionAttributeValues": {
                ":0": {"L": [{"S": "ref"}]},
                ":1": {"N": "3"},
                ":2": {"N": "1"},
                ":3": {"SS": ["id"]},
                ":4": {"N": "4"},
                ":5": {"N": "2"},
                ":6": {"N": "4096"},
                ":7": {"S": "id"},
            },
        },
    )


@pytest.mark.parametrize(
    ("action", "kind", "request_"),
    [
        (Put(KEY, {"n": 1}, (Absent(),)), "Put", {"Item": {**WIRE_KEY, "n": {"N": "1"}}}),
        (Put(KEY, {"p": "other", "i": 0}, (Absent(), Equals("n", 1))), "Put", {"Item": WIRE_KEY}),
        (Update(KEY, (), (Absent(),)), "Put", {"Item": WIRE_KEY}),
        (Check(KEY, (Absent(),)), "ConditionCheck", {"Key": WIRE_KEY}),
    ],
    ids=label,
)
def test_absent_stands_alone(action: Action, kind: str, request_: dict[str, Any]) -> None:
    assert request_of(action) == (kind, {**request_, "ConditionExpression": "attribute_not_exists(p)"})


@pytest.mark.parametrize("action", [Update(KEY, ()), Check(KEY)], ids=label)
def test_nothing_to_change_is_a_check(action: Action) -> None:
    assert request_of(action) == ("ConditionCheck", {"Key": WIRE_KEY, "ConditionExpression": "attribute_exists(p)"})


def test_all_partitions_of_a_topic_fit() -> None:
    adds = tuple(Add(("nx", str(q)), 1) for q in range(128))
    rest = (Append("e", ["ref"]), Add("k", 1), Add("b", 900), Include("ids", frozenset({"id"})))
    expected = tuple(Equals(("nx", str(q)), 10**12) for q in range(128))
    _, request = request_of(Update(KEY, (*adds, *rest), (Equals("page", 1), *expected)))
    assert len(request["UpdateExpression"]) < MAX_EXPRESSION_BYTES
    assert len(request["ConditionExpression"]) < MAX_EXPRESSION_BYTES


def test_what_dynamodb_would_not_read_is_refused() -> None:
    with pytest.raises(TooLarge, match="4,096"):
        request_of(Update(KEY, tuple(Add(("nx", str(q)), 1) for q in range(400))))
    with pytest.raises(TooLarge, match="4,096"):
        request_of(Delete(KEY, tuple(Exists(("nx", str(q))) for q in range(400))))
    with pytest.raises(BadInput):
        request_of(Check(KEY, (Equals("a", frozenset()),)))
    with pytest.raises(BadInput):
        request_of(Check(KEY, (Equals("a", 1.5),)))
