"""What is let in quickly is exactly what `check_write` lets in, and a bound is never below the size."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.errors import TailraceError
from tailrace.storage.limits import MAX_ACTIONS, MAX_ITEM_BYTES, check_values, check_write, item_size, size_of
from tailrace.storage.memory.admission import admit, bound, plain
from tailrace.storage.tables import Add, Append, Check, Include, Key, Put, Remove, Set, Update

scalars = st.none() | st.booleans() | st.integers(-(10**39), 10**39) | st.text(max_size=5) | st.binary(max_size=5)
odd = st.floats() | st.decimals() | st.sets(st.text(max_size=2) | st.integers(), max_size=2).map(frozenset)
values = st.recursive(
    scalars | odd, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3), max_leaves=8
)


def refuses(check, *args) -> bool:
    try:
        check(*args)
    except TailraceError:
        return True
    return False


@given(values)
def test_a_bound_is_never_below_the_size(value):
    try:
        check_values(value)
        size = size_of(value)
    except TailraceError:
        assert refuses(bound, value)
    else:
        assert bound(value) >= size


@given(values, st.sampled_from(["put", "set", "append", "map"]))
@example(10**38, "put")
def test_refuses_what_check_write_refuses(value, how):
    key = Key("k", 1)
    action = {
        "put": Put(key, {"v": value}, ()),
        "set": Update(key, (Set("v", value), Add("n", 1))),
        "append": Update(key, (Append("v", [value]),)),
        "map": Update(key, (Set(("a", "b"), value), Remove("c"))),
    }[how]
    assert refuses(admit, (action,)) == refuses(check_write, (action,))


def texts(*lengths: int) -> tuple[Put, ...]:
    return tuple(Put(Key("k", i), {"v": "é" * (n // 2)}, ()) for i, n in enumerate(lengths))


ROOM = MAX_ITEM_BYTES - item_size({"p": "k", "i": 1, "v": ""})


@pytest.mark.parametrize(
    "actions",
    [
        (),
        texts(ROOM),
        texts(ROOM + 2),
        texts(*[ROOM - 60_000] * 12),
        texts(*[ROOM] * 10),
        texts(*[ROOM] * 11),
        texts(*[10] * MAX_ACTIONS),
        texts(*[10] * (MAX_ACTIONS + 1)),
        (Check(Key("k")), Check(Key("k"))),
        (Check(Key("")),),
        (Update(Key("k"), (Set("a", 1), Set(("a", "b"), 1))),),
        (Update(Key("k"), (Set("p", "x"),)),),
        (Update(Key("k"), (Include("s", frozenset()),)),),
        (Update(Key("k"), (Set("d", Decimal("1.5")), Include("s", frozenset({"x"})))),),
        (Update(Key("k"), (Set("v", "x" * MAX_ITEM_BYTES * 2),)),),
    ],
    ids=lambda actions: f"{len(actions)} {actions!r:.50}",
)
def test_limits_are_those_of_check_write(actions):
    assert refuses(admit, actions) == refuses(check_write, actions)


def test_what_is_let_in_is_a_copy_as_a_table_would_give_it_back():
    inner = [1]
    given = {"t": (1, (2,)), "l": inner, "s": {"a"}, "b": bytearray(b"x"), "m": memoryview(b"y"), "d": Decimal(1)}
    got = plain(given)
    assert got == {"t": [1, [2]], "l": [1], "s": frozenset({"a"}), "b": b"x", "m": b"y", "d": Decimal(1)}
    assert isinstance(got["s"], frozenset)
    inner.append(2)
    assert got["l"] == [1]
