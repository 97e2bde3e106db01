"""Rows: messages as Arrow, and back, with their types, ids and unset fields."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.adaptors.rows.message import Message, Place
from tailrace.adaptors.rows.record_key import id_text
from tailrace.adaptors.rows.rows import (
    columns_of,
    definition_of,
    keys_of,
    make_rows,
    messages_of,
    namespace_of,
    ops_of,
    rows_of,
)
from tailrace.errors import BadInput
from tailrace.log.format.chunk import decode
from tailrace.log.record import Mode, Op
from tailrace.log.write.buffer import Buffer

COLUMNS = pa.record_batch({"id": [7, 8], "name": ["a", None]})


def test_rows_say_what_they_are() -> None:
    rows = make_rows("public.orders", COLUMNS, ["id"], op=Op.UPDATE, mode=Mode.SYNC, timestamp=5)
    assert (namespace_of(rows), keys_of(rows)) == ("public.orders", ("id",))
    assert ops_of(rows).to_pylist() == [1, 1]
    assert columns_of(rows).equals(COLUMNS)
    assert rows.column("key").to_pylist() == [b"public.orders\x007", b"public.orders\x008"]
    assert list(messages_of(rows)) == [
        Message(Op.UPDATE, "public.orders", "7", {"id": 7, "name": "a"}, 5, Mode.SYNC, ("id",)),
        Message(Op.UPDATE, "public.orders", "8", {"id": 8, "name": None}, 5, Mode.SYNC, ("id",)),
    ]


def test_ops_and_times_row_by_row() -> None:
    ops, times = pa.array([Op.DELETE, Op.INSERT], pa.uint8()), pa.array([1, 2], pa.int64())
    rows = make_rows("t", COLUMNS, ["id"], op=ops, mode=Mode.COMPLETE, timestamp=times)
    assert [(m.op, m.timestamp, m.mode) for m in messages_of(rows)] == [
        (Op.DELETE, 1, Mode.COMPLETE),
        (Op.INSERT, 2, Mode.COMPLETE),
    ]


def test_an_id_of_several_fields_or_of_all() -> None:
    assert [m.id for m in messages_of(make_rows("t", COLUMNS, ["name", "id"]))] == ["a\x1f7", "\x1bN\x1f8"]
    assert [m.id for m in messages_of(make_rows("t", COLUMNS, []))] == ["7\x1fa", "8\x1f\x1bN"]


def test_a_key_that_is_no_field() -> None:
    with pytest.raises(BadInput, match="'t' has no field 'nr', which is part of its id"):
        make_rows("t", COLUMNS, ["nr"])


@given(
    st.lists(
        st.tuples(st.none() | st.text("aN\x1b\x1f\x00S"), st.none() | st.text("aN\x1b\x1f\x00S")),
        max_size=8,
        unique=True,
    )
)
@example([("\x1bS", "a"), ("\x1f", "a")])
@example([("\x1bN", "a"), (None, "a")])
def test_no_two_ids_are_written_alike(ids: list[tuple[str | None, str | None]]) -> None:
    columns = pa.record_batch(
        {"a": pa.array([a for a, _ in ids], pa.string()), "b": pa.array([b for _, b in ids], pa.string())}
    )
    assert len({m.id for m in messages_of(make_rows("t", columns, ["a", "b"]))}) == len(ids)


_ALONE = st.none() | st.binary(max_size=3) | st.lists(st.sampled_from([b"a", b"N", b"T", b"\x1b", b"\n"])).map(b"".join)


@given(st.lists(_ALONE, max_size=8, unique=True))
@example([None, b"\x1bN", b"\x1b\x1bN"])
@example([b"\x1bT", b"\x1b\x1bT"])
def test_no_two_ids_of_one_field_are_written_alike(ids: list[bytes | None]) -> None:
    """Nor as the row that defines columns.  Logs and sinks have keys of earlier versions, so every other id, also one
    of bytes that happens to begin with 1b, is still written as it is."""
    rows = make_rows("t", pa.record_batch({"id": pa.array(ids, pa.binary())}), ["id"])
    found = rows.column("key").to_pylist()
    assert len({*found, *definition_of(rows, 0).column("key").to_pylist()}) == len(ids) + 1
    for id, key in zip(ids, found, strict=True):
        odd = id is None or (len(id) > 1 and id[-1:] in (b"N", b"T") and not id[:-1].strip(b"\x1b"))
        assert odd or key == b"t\x00" + (id or b"")


def test_ids_of_any_type_are_text() -> None:
    for value, text in (
        (1.5, b"1.5"), (True, b"true"), (b"\xff", b"\xff"), (dt.date(2024, 1, 2), b"2024-01-02"),
        (Decimal("1.50"), b"1.50"), ([1, 2], b"[1,2]"), ({"a": 1}, b'{"a":1}'),
    ):  # fmt: skip
        assert id_text(pa.array([value])).to_pylist() == [text]


# -- unset
BYTES = [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())]


@pytest.mark.parametrize("type", BYTES, ids=str)
def test_an_id_of_bytes_is_written_alike_whatever_else_is_in_its_batch(type: pa.DataType) -> None:
    for others in ([], [b"\xff\xfe"]):
        column = pa.array([b"ab", *others], pa.binary())
        column = column.dictionary_encode() if pa.types.is_dictionary(type) else column.cast(type)
        assert id_text(column).to_pylist() == [b"ab", *others]


def test_unset_is_not_null() -> None:
    rows = make_rows("t", COLUMNS, ["id"], unset=pa.array([b"\x02", None], pa.binary()))
    assert [m.data for m in messages_of(rows)] == [{"id": 7}, {"id": 8, "name": None}]
    assert "unset" not in make_rows("t", COLUMNS, ["id"], unset=pa.nulls(2, pa.binary())).schema.names


_VALUES = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.booleans()
    | st.lists(st.integers(0, 9), max_size=2)
)


@given(
    st.lists(st.dictionaries(st.sampled_from([f"f{n}" for n in range(12)]), st.none() | st.integers(0, 9)), max_size=6)
)
@settings(deadline=None)
def test_messages_come_back_as_they_went(documents: list[dict[str, Any]]) -> None:
    messages = [Message(Op.INSERT, "t", "", {"id": n, **d}, n, Mode.SYNC, ("id",)) for n, d in enumerate(documents)]
    back = [m for b in rows_of(messages) for m in messages_of(b)]
    assert [(m.data, m.timestamp, m.id) for m in back] == [
        (m.data, m.timestamp, str(n)) for n, m in enumerate(messages)
    ]


@given(st.lists(_VALUES, min_size=1, max_size=6))
@settings(deadline=None)
def test_a_field_of_several_types_is_json(values: list[Any]) -> None:
    (rows,) = rows_of(Message(Op.INSERT, "t", "", {"id": n, "f": v}, keys=("id",)) for n, v in enumerate(values))
    rows.validate(full=True)
    assert rows.num_rows == len(values)


def test_several_namespaces_and_modes_are_several_batches() -> None:
    messages = [
        Message(Op.INSERT, ns, "", {"id": 1}, 0, mode, ("id",)) for ns in "ab" for mode in (Mode.COPY, Mode.SYNC)
    ]
    assert [(namespace_of(b), next(messages_of(b)).mode) for b in rows_of(messages)] == [
        ("a", Mode.COPY), ("a", Mode.SYNC), ("b", Mode.COPY), ("b", Mode.SYNC),
    ]  # fmt: skip


def test_documents_without_fields() -> None:
    (rows,) = rows_of(Message(Op.INSERT, "t", "", {}, n) for n in range(3))
    rows.validate(full=True)
    assert [(m.data, m.timestamp) for m in messages_of(rows)] == [({}, 0), ({}, 1), ({}, 2)]


# -- through a chunk
def test_types_survive_the_log() -> None:
    columns = pa.record_batch(
        {
            "id": pa.array([1], pa.int16()),
            "dec": pa.array([Decimal("12345678901234567890.5")], pa.decimal128(38, 10)),
            "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(1, 1, 1)], pa.date32()),
            "raw": pa.array([b"\x00\xff"], pa.binary()),
            "span": pa.array([pa.MonthDayNano([1, 2, 3])], pa.month_day_nano_interval()),
            "many": pa.array([[[1, None], []]], pa.list_(pa.list_(pa.int32()))),
            "deep": pa.array([{"a": {"b": None}}], pa.struct([("a", pa.struct([("b", pa.string())]))])),
            "json": pa.array(['{"x":1}'], pa.json_()),
            "null": pa.nulls(1),
        }
    )
    rows = make_rows("t", columns, ["id"])
    buffer = Buffer(1, 1 << 20)
    buffer.add_batch(rows)
    chunk = buffer.encode("zstd")
    whole = b"".join(chunk.parts)
    (back,) = decode(chunk.kind, chunk.runs[0], memoryview(whole), "here")
    assert back.equals(rows, check_metadata=True)


# -- the page
def worked_example() -> str:
    """The rows of docs/formats/message.md, made by the code."""
    columns = pa.record_batch(
        {
            "id": pa.array([7, 8, 9], pa.int32()),
            "total": pa.array([Decimal("1.50"), None, None], pa.decimal128(10, 2)),
            "note": ["a", None, None],
        }
    )
    ops, unset = pa.array([0, 1, 2], pa.uint8()), pa.array([None, b"\x04", b"\x06"], pa.binary())
    rows = make_rows("public.orders", columns, ["id"], op=ops, mode=Mode.SYNC, timestamp=1_700_000_000_000, unset=unset)
    named, keys = (rows.schema.metadata[name].decode() for name in (b"namespace", b"keys"))
    lines = [f"namespace {named!r}, keys {keys!r}, data {rows.schema.field('data').type}"]
    for row in rows.to_pylist():
        key = row["key"].decode().replace("\x00", " 00 ")
        fields = ", ".join(f"{name}: {'null' if value is None else value}" for name, value in row["data"].items())
        missing = row["unset"].hex() if row["unset"] else "null"
        lines.append(f"attributes {row['attributes']:02x}  key {key}  data {f'{{{fields}}}':<35}  unset {missing}")
    return "\n".join(lines) + "\n"


def test_the_page_shows_what_is_written() -> None:
    page = Path(__file__).parents[3] / "docs" / "formats" / "message.md"
    assert f"```\n{worked_example()}```\n" in page.read_text(), f"it should have\n{worked_example()}"


def test_where_a_change_stands_goes_along() -> None:
    numbers = {"transaction": pa.array([7, None], pa.int64()), "position": pa.array([0, None], pa.int64())}
    rows = make_rows("t", COLUMNS, ["id"], **numbers)
    places = [message.place for message in messages_of(rows)]
    assert places == [Place(transaction=7, position=0), Place()]
    assert [m.place for batch in rows_of(messages_of(rows), rows.schema) for m in messages_of(batch)] == places
