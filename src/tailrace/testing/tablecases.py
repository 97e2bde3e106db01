"""Cases of `TableContract`: conditions that hold and fail, changes that fit and do not, values; and helpers of its
tests.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

from tailrace.errors import Throttled
from tailrace.storage.tables import (
    LAST,
    Absent,
    Action,
    Add,
    Append,
    AtMost,
    Change,
    Condition,
    Equals,
    Exists,
    Include,
    Item,
    Key,
    Less,
    NotIn,
    Remove,
    Set,
    Slice,
    Table,
)

STORED: dict[str, Any] = {
    "n": 5,
    "d": Decimal("2.5"),
    "t": "text",
    "b": b"text",
    "yes": True,
    "one": 1,
    "long": Decimal("0.12345678901234567890123456789012345678"),
    "none": None,
    "list": [1, "a"],
    "map": {"x": {"y": 7}},
    "ids": frozenset({"a", "b"}),
}
"""An item with every kind of value."""

HOLD: list[Condition] = [
    Absent("gone"),
    Absent(("map", "gone")),
    Absent(("gone", "x")),
    Absent(("t", "x")),
    Exists("n"),
    Exists("none"),
    Exists(("map", "x", "y")),
    Equals("n", 5),
    Equals("d", Decimal("2.5")),
    Equals("t", "text"),
    Equals("b", b"text"),
    Equals("yes", True),
    Equals("none", None),
    Equals("list", [1, "a"]),
    Equals("map", {"x": {"y": 7}}),
    Equals("ids", frozenset({"b", "a"})),
    Equals(("map", "x", "y"), 7),
    AtMost("n", 5),
    AtMost("n", 6),
    AtMost("d", 3),
    AtMost(("map", "x", "y"), 7),
    Less("n", 6),
    Less("d", 3),
    NotIn("ids", "c"),
    NotIn("gone", "a"),
    NotIn(("map", "gone"), "a"),
]
"""Conditions that hold for `STORED`."""

FAIL: list[Condition] = [
    Absent(),
    Absent("n"),
    Absent("none"),
    Absent(("map", "x")),
    Exists("gone"),
    Exists(("map", "gone")),
    Exists(("t", "x")),
    Equals("n", 6),
    Equals("n", "5"),
    Equals("t", b"text"),
    Equals("b", "text"),
    Equals("yes", 1),
    Equals("one", True),
    Equals("gone", None),
    Equals("none", False),
    Equals("list", ["a", 1]),
    Equals("list", [True, "a"]),
    Equals("map", {"x": {"y": 8}}),
    Equals("ids", frozenset({"a"})),
    AtMost("n", 4),
    AtMost("gone", 4),
    AtMost("t", 4),
    AtMost("yes", 4),
    Less("n", 5),
    Less("d", 2),
    Less("gone", 9),
    NotIn("ids", "a"),
]
"""Conditions that fail for `STORED`."""

CHANGES: list[tuple[Change, Callable[[Item], Any], Any]] = [
    (Set("n", "now text"), lambda item: item["n"], "now text"),
    (Set("new", {"deep": [1]}), lambda item: item["new"], {"deep": [1]}),
    (Set(("map", "x", "z"), None), lambda item: item["map"], {"x": {"y": 7, "z": None}}),
    (Add("n", 3), lambda item: item["n"], 8),
    (Add("n", -9), lambda item: item["n"], -4),
    (Add("n", 0), lambda item: item["n"], 5),
    (Add("new", 2), lambda item: item["new"], 2),
    (Add("d", 1), lambda item: item["d"], Decimal("3.5")),
    (Add(("map", "x", "y"), 1), lambda item: item["map"]["x"]["y"], 8),
    (Add("long", 0), lambda item: item["long"], STORED["long"]),
    (Append("list", ["b", {"c": b"d"}]), lambda item: item["list"], [1, "a", "b", {"c": b"d"}]),
    (Append("list", []), lambda item: item["list"], [1, "a"]),
    (Include("ids", frozenset({"b", "c"})), lambda item: item["ids"], frozenset({"a", "b", "c"})),
    (Include("new", frozenset({"x"})), lambda item: item["new"], frozenset({"x"})),
    (Include(("map", "s"), frozenset({"x"})), lambda item: item["map"]["s"], frozenset({"x"})),
    (Remove("n"), lambda item: "n" in item, False),
    (Remove(("map", "x", "y")), lambda item: item["map"], {"x": {}}),
    (Remove("gone"), lambda item: "gone" in item, False),
]
"""A change of `STORED`, where to look afterwards, and what the test must find there."""

BAD_CHANGES: list[Change] = [
    Set(("t", "x"), 1),
    Set(("gone", "x"), 1),
    Add("t", 1),
    Add("yes", 1),
    Add(("gone", "x"), 1),
    Add(("map", "n"), 1),
    Append("gone", [1]),
    Append("t", ["x"]),
    Append("ids", ["x"]),
    Add("n", 10**38 - 1),
    Include("t", frozenset({"x"})),
    Include("list", frozenset({"x"})),
    Include("ids", frozenset()),
    Set("n", frozenset()),
    Set("n", 1.5),
    Set("n", 10**38),
    Set("n", Decimal("NaN")),
    Set("n", [frozenset({"a", 1})]),
]
"""Changes of `STORED` that every backend refuses."""

FORBIDDEN: list[tuple[Change, ...]] = [
    (Set("p", "x"),),
    (Add("i", 1),),
    (Remove("i"),),
    (Set("n", 1), Add("n", 1)),
    (Set("map", {}), Set(("map", "x"), 1)),
]
"""Updates that every backend refuses: of the key, or of one attribute twice."""

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 2**64, -(2**70), 10**38 - 1, 1 - 10**38),
    *(Decimal("0.1"), Decimal("-12345.678901"), Decimal("1.2345678901234567890123456789012345678")),
    *("", "text", "naïve ☃ 𝄞", "nul\0inside", b"", b"text", bytes(range(256))),
    *([], {}, [[]], [{}], {"": 1}, {"a": {}}, [None, True, 1, "1", b"1"]),
    *(frozenset({"a"}), frozenset({"a", ""}), frozenset({1, -2, 3}), frozenset({b"a", b"b"})),
    *({"a": [1, {"b": frozenset({"c"}), "d": b"e"}], "f": Decimal("0.5")}, [[1, [2, [3, []]]]]),
    *(["x"] * 300, {str(n): n for n in range(300)}, "x" * 70_000, b"x" * 70_000),
]
"""Values that a backend must return exactly as they were stored."""


def exactly(a: Any, b: Any) -> bool:
    """Whether two values are equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(exactly(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(exactly(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, frozenset):
        return bool(a == b) and {type(x) for x in a} == {type(x) for x in b}
    return bool(a == b)


def insist(table: Table, *actions: Action) -> tuple[Item | None, ...] | None:
    """Write, and repeat the write while the backend refuses it for now, as a caller would."""
    for attempt in range(200):
        try:
            return table.write(*actions)
        except Throttled:
            time.sleep(0.002 * min(attempt + 1, 20))
    raise AssertionError(f"refused 200 times: {actions}")


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """For a test of threads: return the answers of `work(0)` … `work(count - 1)`, each in a thread, all started
    together."""
    ready = threading.Barrier(count)

    def begin(n: int) -> Any:
        ready.wait(30)
        return work(n)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def there(table: Table, key: Key) -> Item:
    """Return an item of the table under test, which must exist."""
    item = table.get(key)
    assert item is not None, f"{key} is gone"
    return item


def pages(table: Table, p: str, *, descending: bool = False, limit: int | None = None) -> list[Slice]:
    """Return all pages of a query; each begins where the one before ended."""
    out = [table.query(p, descending=descending, limit=limit)]
    while (more := out[-1].more) is not None:
        low, high = (0, more - 1) if descending else (more + 1, LAST)
        out.append(table.query(p, low, high, descending=descending, limit=limit))
    return out


def scanned(table: Table) -> list[Item]:
    """Return every item of the table under test."""
    out: list[Item] = []
    while found := table.scan(Key(out[-1]["p"], out[-1]["i"]) if out else None):
        out += found
    return out


def label(value: object) -> str:
    """Return the name of a test case, the same in every process: its repr, with the members of sets in order."""
    return re.sub(r"frozenset\(\{(.*?)\}\)", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", repr(value))
