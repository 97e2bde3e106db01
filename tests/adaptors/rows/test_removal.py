"""Whole documents and changes: what a field that a row does not have means, and fields that are taken away."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from tailrace.adaptors.rows.fold import fold
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.removal import names_of, pointer, take_away
from tailrace.adaptors.rows.rows import columns_of, make_rows, messages_of, rows_of
from tailrace.adaptors.rows.unset import left_as_they_are, whole_of
from tailrace.errors import Rejected
from tailrace.log.record import Op
from tailrace.pipeline.functions import each, omit, rename


def message(id: int, whole: bool = True, removed: tuple[str, ...] = (), **data: object) -> Message:
    return Message(Op.UPDATE, "t", str(id), {"id": id, **data}, keys=("id",), whole=whole, removed=removed)


def folded(*messages: Message) -> dict[int, tuple[dict[str, object], bool]]:
    """What a sink of columns is given of each document, and whether it leaves fields as they are."""
    (batch,) = rows_of(messages)
    found = fold(batch)
    partial = found.unset.is_valid().to_pylist()
    return {row["id"]: (row, one) for row, one in zip(found.columns.to_pylist(), partial, strict=True)}


def test_a_whole_document_has_no_field_that_it_does_not_have() -> None:
    """A change leaves it as it was."""
    found = folded(message(1, a=1), message(2, b=2), message(3, whole=False, b=3))
    assert found[1] == ({"id": 1, "a": 1, "b": None}, False)
    assert found[2] == ({"id": 2, "a": None, "b": 2}, False)
    assert found[3] == ({"id": 3, "a": None, "b": 3}, True)


def test_messages_and_rows_are_the_same() -> None:
    given = [message(1, a=1), message(2, whole=False, b={"c": 2}), message(3, b={"c": 1}, removed=("/b/d",))]
    back = [m for batch in rows_of(given) for m in messages_of(batch)]
    assert [(m.data, m.whole, m.removed) for m in back] == [
        ({"id": 1, "a": 1}, True, ()),
        ({"id": 2, "b": {"c": 2}}, False, ()),
        ({"id": 3, "b": {"c": 1}}, True, ("/b/d",)),
    ]


def test_rows_of_earlier_versions_are_whole_where_nothing_is_unset() -> None:
    columns = pa.record_batch({"id": [1, 2], "a": [1, None]})
    rows = make_rows("t", columns, ["id"], unset=pa.array([None, b"\x02"], pa.binary()))
    assert whole_of(rows).to_pylist() == [True, False]
    assert left_as_they_are(rows).to_pylist() == [None, b"\x02"]
    assert [m.whole for m in messages_of(rows)] == [True, False]


def test_a_document_that_loses_a_field_on_its_way_is_still_whole() -> None:
    """It came as one of many, and only it lost the field: before, a sink took it for a change of a row it never had."""

    def lose(one: Message) -> Message:
        if one.data["id"] == 1:
            del one.data["a"]
        return one

    (rows,) = rows_of([message(1, a=1), message(2, a=2)])
    (after,) = each(lose)(rows)
    assert fold(after).unset.null_count == 2
    assert fold(after).columns.to_pylist() == [{"id": 1, "a": None}, {"id": 2, "a": 2}]


def test_changes_are_laid_over_each_other_and_over_whole_documents() -> None:
    found = folded(message(1, a=1, b=1), message(1, whole=False, b=2), message(1, whole=False, a=3))
    assert found == {1: ({"id": 1, "a": 3, "b": 2}, False)}
    found = folded(message(1, whole=False, b=2), message(1, a=5))
    assert found == {1: ({"id": 1, "a": 5, "b": None}, False)}


def test_a_change_takes_fields_away() -> None:
    """It changes a document that is there, or nothing, though it leaves no field as it was."""
    (rows,) = rows_of([message(1, whole=False, removed=("/b",), a=1), message(2, whole=False, b=2)])
    assert fold(rows).columns.to_pylist() == [{"id": 1, "a": 1, "b": None}, {"id": 2, "a": None, "b": 2}]
    assert fold(rows).unset.to_pylist() == [b"\x00", b"\x02"]


def test_nested_fields_that_are_taken_away_are_left_out_of_the_json() -> None:
    (rows,) = rows_of([message(1, a={"b": 1, "c": 2}, removed=("/a/c",)), message(2, a={"b": 3, "c": None})])
    texts = columns_of(rows)  # as Arrow has them: both are null
    assert texts.num_rows == 2
    found = fold(rows).columns.column("a").to_pylist()
    assert [msgspec.json.decode(text) for text in found] == [{"b": 1}, {"b": 3, "c": None}]
    assert [m.data["a"] for m in messages_of(rows)] == [{"b": 1}, {"b": 3, "c": None}]


def test_a_table_cannot_take_something_out_of_a_field_that_it_is_not_given() -> None:
    (rows,) = rows_of([message(1, whole=False, removed=("/a/c",)), message(2, a={"c": 1})])
    with pytest.raises(Rejected, match=r"a change of 1 takes something out of 'a'.*send whole documents"):
        fold(rows)


def test_functions_keep_what_is_said_beside_the_document() -> None:
    (rows,) = rows_of([message(1, whole=False, removed=("/b", "/a/c")), message(2, a={"c": 1}, b=2)])
    (moved,) = rename({"a": "x"})(rows)
    assert [m.removed for m in messages_of(moved)] == [("/b", "/x/c"), ()]
    assert [m.whole for m in messages_of(moved)] == [False, True]
    (less,) = omit("b")(rows)
    assert [m.removed for m in messages_of(less)] == [("/a/c",), ()]


def test_pointers() -> None:
    for names in (["a"], ["a/b", "c~d"], ["", "~1"]):
        assert names_of(pointer(*names)) == names
    document = {"a": {"b": 1, "c": 2}, "d": 3}
    take_away(document, ["/a/b", "/d/e", "/x/y", "/d"])
    assert document == {"a": {"c": 2}}
