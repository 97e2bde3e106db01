"""Items as bytes: every kind comes back, and only what is rare needs to be looked at."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.storage.evaluation import changed
from tailrace.storage.limits import check_form, item_size, rare_in
from tailrace.storage.sqlite.codec import COUNTED_PER_BYTE, pack, packed_size, unpack
from tailrace.storage.tables import Add, Append, Include, Key, Remove, Set, Update
from tailrace.testing.tablecases import STORED, VALUES, exactly, label

integers = st.integers(1 - 10**38, 10**38 - 1)
NAMES = st.text(min_size=1, max_size=5)
scalars = st.none() | st.booleans() | integers | st.text(max_size=20) | st.binary(max_size=20)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**20), max_value=10**20)
sets = st.one_of(st.frozensets(kind, min_size=1, max_size=5) for kind in (st.text(), st.binary(), integers))
values = st.recursive(
    scalars | decimals | sets,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=8,
)
items = st.dictionaries(NAMES, values, max_size=5)
unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(
    "value", [*VALUES, STORED, Decimal("1E+3"), Decimal("0"), Decimal("-0")], ids=lambda v: label(v)[:40]
)
def test_every_kind_comes_back(value: Any) -> None:
    assert exactly(unpack(pack({"v": value})), {"v": value})


@unhurried
@given(items)
def test_any_item_comes_back(item: dict[str, Any]) -> None:
    assert exactly(unpack(pack(item)), item)


@unhurried
@given(items)
def test_the_counted_size_is_bounded_by_the_packed_one(item: dict[str, Any]) -> None:
    assert item_size(item) <= COUNTED_PER_BYTE * len(pack(item))
    assert item_size(item) <= COUNTED_PER_BYTE * packed_size([item])


@pytest.mark.parametrize(
    "worst", [{"": [127] * 500}, {"": [[]] * 500}, {"": {}}, {"": -32}, {"": frozenset({-31, 100})}]
)
def test_the_counted_size_at_its_worst(worst: dict[str, Any]) -> None:
    assert item_size(worst) <= COUNTED_PER_BYTE * len(pack(worst))
    assert item_size(worst) <= COUNTED_PER_BYTE * packed_size([worst])


@unhurried
@given(items)
def test_what_is_not_rare_need_not_be_looked_at(item: dict[str, Any]) -> None:
    assert pack(item, rare_in(item)) == pack(item)


@pytest.mark.parametrize(
    "change",
    [
        Append("list", [[2**70, {"x": b"y"}]]),
        Append("list", []),
        Add(("map", "x", "y"), 2**66),
        Set(("map", "x", "z"), frozenset({"s"})),
        Include("ids", frozenset({"z"})),
        Remove(("map", "x")),
        Set("list", [1]),
        Set("list", ["other", "ones", 3]),
        Set("n", 5),
    ],
    ids=label,
)
def test_a_change_brings_what_is_rare_in_it(change: Any) -> None:
    update = Update(Key("p"), (change,))
    (brought,) = check_form([update])
    new = changed(STORED, update)
    assert new is not None
    assert pack(new, rare_in(STORED) | brought) == pack(new)
    assert exactly(unpack(pack(new, rare_in(STORED) | brought)), new)


def test_an_unchanged_set_has_the_same_bytes() -> None:
    forwards, backwards = frozenset([0, 8]), frozenset([8, 0])
    assert list(forwards) != list(backwards)
    assert pack({"s": forwards}) == pack({"s": backwards})
