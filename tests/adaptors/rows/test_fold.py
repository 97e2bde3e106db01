"""Folding, against a plain dictionary that applies one change after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.adaptors.rows.fold import Folded, fold
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadInput
from tailrace.log.record import Mode, Op

UNSET = object()
value = st.sampled_from([None, "a", "b", "c"])
change = st.one_of(
    st.tuples(st.just(Op.INSERT), st.integers(0, 3), value, value),
    st.tuples(st.just(Op.UPDATE), st.integers(0, 3), value | st.just(UNSET), value | st.just(UNSET)),
    st.tuples(st.just(Op.DELETE), st.integers(0, 3), st.just(UNSET), st.just(UNSET)),
)
Change = tuple[Op, int, Any, Any]


def as_rows(changes: list[Change], keys: list[str]) -> pa.RecordBatch:
    plain = [[None if v is UNSET else v for v in row] for row in changes]
    columns = pa.RecordBatch.from_pydict({
        "x": pa.array([row[2] for row in plain], pa.string()),
        "id": pa.array([row[1] for row in plain], pa.int64()),
        "y": pa.array([row[3] for row in plain], pa.string()),
    })  # fmt: skip
    bits = [(x is UNSET) * 1 + (y is UNSET) * 4 for _, _, x, y in changes]
    unset = pa.array([bytes([b]) if b else None for b in bits], pa.binary())
    ops = pa.array([row[0] for row in changes], pa.uint8())
    return make_rows("t", columns, keys, op=ops, mode=Mode.SYNC, unset=unset)


def apply(table: dict[int, list[Any]], changes: list[Change]) -> dict[int, list[Any]]:
    """What a table holds after changes, as a sink applies them: an update changes only what is there."""
    held = {id: list(row) for id, row in table.items()}
    for op, id, *row in changes:
        if op == Op.DELETE:
            held.pop(id, None)
        elif op == Op.INSERT:
            held[id] = row
        elif id in held:
            held[id] = [old if new is UNSET else new for old, new in zip(held[id], row, strict=True)]
    return held


def meant(changes: list[Change]) -> list[Change]:
    """Changes as a sink takes them: one that has every field is a whole document."""
    return [(Op.INSERT if op == Op.UPDATE and UNSET not in row else op, *row) for op, *row in changes]  # type: ignore[misc]


def listed(folded: Folded) -> list[tuple[int, bytes | None, dict[str, Any]]]:
    """Its rows, one by one."""
    return list(zip(folded.ops.to_pylist(), folded.unset.to_pylist(), folded.columns.to_pylist(), strict=True))


def folded(changes: list[Change]) -> list[Change]:
    """What is left of them; an update is a row that may only change what is there."""
    after = fold(as_rows(changes, ["id"]))
    after.columns.validate(full=True)
    out = []
    for number, unset, row in listed(after):
        bits = unset[0] if unset else 0
        op = Op(number) if unset is None else Op.UPDATE
        out.append((op, row["id"], UNSET if bits & 1 else row["x"], UNSET if bits & 4 else row["y"]))
    return out


@settings(deadline=None)
@given(st.lists(change, min_size=1, max_size=12))
def test_one_change_of_each_id_does_as_much_as_all(changes: list[Change]) -> None:
    before = {0: ["old", "old"], 1: ["old", None]}
    after = folded(changes)
    assert Counter(id for _, id, _, _ in after).most_common(1)[0][1] == 1
    # A sink deletes first, then changes what is there, then inserts.
    order = sorted(after, key=lambda c: (c[0] != Op.DELETE, c[0] != Op.UPDATE))
    assert apply(before, order) == apply(before, meant(changes))


def test_a_partial_change_after_a_delete_has_nothing_to_change() -> None:
    changes: list[Change] = [(Op.DELETE, 0, UNSET, UNSET), (Op.UPDATE, 0, "x", UNSET)]
    (after,) = folded(changes)
    assert after[:2] == (Op.DELETE, 0)


def test_fields_of_several_changes_are_no_new_document() -> None:
    changes: list[Change] = [(Op.UPDATE, 0, "x", UNSET), (Op.UPDATE, 0, UNSET, "y")]
    assert folded(changes) == [(Op.UPDATE, 0, "x", "y")]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([Op.INSERT, Op.DELETE]), st.integers(0, 2), value, value), max_size=12))
def test_without_an_id_the_difference_counts(changes: list[Change]) -> None:
    expected: Counter[Any] = Counter()
    for op, *row in changes:
        expected[tuple(row)] += 1 if op == Op.INSERT else -1
    after = listed(fold(as_rows(changes, []))) if changes else []
    found: Counter[Any] = Counter()
    for op, _, row in after:
        found[row["id"], row["x"], row["y"]] += 1 if op == Op.INSERT else -1
    assert {k: n for k, n in found.items() if n} == {k: n for k, n in expected.items() if n}
    assert len(after) == sum(abs(n) for n in expected.values())


def test_rows_that_say_nothing_are_left_out() -> None:
    changes: list[Change] = [(Op.NOOP, 1, "a", "a"), (Op.INSERT, 2, "b", "b"), (Op.SKIP, 3, "c", "c")]
    assert folded(changes) == [(Op.INSERT, 2, "b", "b")]


def test_a_command_is_refused() -> None:
    with pytest.raises(BadInput, match="a command is not a row"):
        fold(as_rows([(Op.COMMAND, 1, "a", "a")], ["id"]))


def test_fields_of_any_name() -> None:
    columns = pa.record_batch({"op": ["a", "b", "c"], "unset": [1, 2, 1], "n": [None, "x", "y"]})
    after = fold(make_rows("t", columns, ["unset"], op=Op.UPDATE, mode=Mode.SYNC))
    assert after.columns.to_pylist() == [{"op": "b", "unset": 2, "n": "x"}, {"op": "c", "unset": 1, "n": "y"}]
