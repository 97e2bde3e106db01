"""Functions of branches: what they keep, change and refuse; ids stay whole."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.adaptors.rows.message import Message, Place
from tailrace.adaptors.rows.provenance import placed, places_of
from tailrace.adaptors.rows.rows import columns_of, is_open, keys_of, make_rows, messages_of, namespace_of
from tailrace.errors import BadInput, BadSetting
from tailrace.log.record import Mode, Op
from tailrace.pipeline.functions import batch, destination, each, function, omit, opfilter, pick, pretty, remap, rename
from tailrace.pipeline.functions.skip import OPERATORS, matches, skip

ORDERS = pa.record_batch({"id": [1, 2, 3], "card": ["a", None, "c"], "n": ["10", "9", "11"]})


def orders(**given: Any) -> pa.RecordBatch:
    return make_rows("public.orders", ORDERS, ["id"], mode=Mode.SYNC, timestamp=7, **given)


def partly() -> pa.RecordBatch:
    """Row 1 has only its id and n; row 2 only its id, as deletes have it."""
    columns = pa.record_batch({"card": ["a", None, None], "id": [1, 2, 3], "n": [5, 6, None]})
    ops = pa.array([Op.INSERT, Op.UPDATE, Op.DELETE], pa.uint8())
    return make_rows("t", columns, ["id"], op=ops, unset=pa.array([None, b"\x01", b"\x05"], pa.binary()))


def only(batches: Any) -> pa.RecordBatch:
    (one,) = batches
    one.validate(full=True)
    return one


def data(batches: Any) -> list[dict[str, Any]]:
    return [m.data for b in batches for m in messages_of(b)]


# -- fields
def test_omit_leaves_fields_out() -> None:
    out = only(omit("card", "no such")(orders()))
    assert data([out])[0] == {"id": 1, "n": "10"}
    assert out.column("key").equals(orders().column("key"))
    assert omit("no such")(orders())[0].equals(orders())


def test_omit_refuses_the_id() -> None:
    with pytest.raises(BadInput, match=r"omit would take away 'id', which is part of the id of 'public.orders'"):
        omit("id")(orders())


def test_pick_keeps_the_id_too() -> None:
    assert data(pick("n")(orders()))[0] == {"id": 1, "n": "10"}
    assert data(pick("no such")(orders()))[0] == {"id": 1}


def test_without_a_key_all_fields_may_go() -> None:
    keyless = make_rows("t", ORDERS, [])
    out = only(pick("no such")(keyless))
    assert out.num_rows == 3
    assert data([out]) == [{}, {}, {}]
    assert out.column("key").equals(keyless.column("key"))


def test_rename_takes_the_id_along() -> None:
    out = only(rename({"id": "order number"}, card="cc")(orders()))
    assert keys_of(out) == ("order number",)
    assert data([out])[2] == {"order number": 3, "cc": "c", "n": "11"}
    assert next(messages_of(out)).id == "1"


def test_rename_refuses_two_of_a_name() -> None:
    with pytest.raises(BadInput, match="two fields the name 'n'"):
        rename(card="n")(orders())


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (omit("card"), [{"id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 3}]),
        (pick("n"), [{"id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 3}]),
        (rename(n="m"), [{"card": "a", "id": 1, "m": 5}, {"id": 2, "m": 6}, {"id": 3}]),
        (pick("card"), [{"card": "a", "id": 1}, {"id": 2}, {"id": 3}]),
        (each(lambda m: m), [{"card": "a", "id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 3}]),
        (batch(lambda c: c), [{"card": "a", "id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": 3}]),
    ],
)
def test_unset_stays_unset(made: Any, expected: list[dict[str, Any]]) -> None:
    assert data(made(partly())) == expected


@given(st.lists(st.lists(st.booleans(), min_size=20, max_size=20), min_size=1, max_size=5), st.sets(st.integers(0, 19)))
@settings(max_examples=50, deadline=None)
def test_unset_fields_move_with_their_columns(missing: list[list[bool]], gone: set[int]) -> None:
    bits = [bytes(sum(row[8 * i + n] << n for n in range(8) if 8 * i + n < 20) for i in range(3)) for row in missing]
    columns = pa.record_batch({f"f{n}": [n] * len(missing) for n in range(20)})
    rows = make_rows("t", columns, [], unset=pa.array([b if any(b) else None for b in bits], pa.binary()))
    names = [f"f{n}" for n in gone]
    kept = [{k: v for k, v in document.items() if k not in names} for document in data([rows])]
    assert data(omit(*names)(rows) if names else [rows]) == kept


# -- namespaces and ops
def test_remap_moves_rows_and_their_keys() -> None:
    out = only(remap({r"public\.(.*)": r"shop_\1"})(orders().slice(1)))
    assert namespace_of(out) == "shop_orders"
    assert out.column("key").to_pylist() == [b"shop_orders\x002", b"shop_orders\x003"]
    assert [m.id for m in messages_of(out)] == ["2", "3"]


def test_remap_leaves_ids_alone_that_look_like_a_namespace() -> None:
    rows = make_rows("a", pa.record_batch({"id": [b"a\x00a\x00"]}), ["id"])
    assert only(remap({"a": "b"})(rows)).column("key").to_pylist() == [b"b\x00a\x00a\x00"]


def test_remap_matches_whole_names_first_come() -> None:
    made = remap({"a": "x", "a.*": "y"})
    assert [made.destination(name) for name in ("a", "ab", "ba")] == ["x", "y", "ba"]
    assert destination((omit("a"), made, remap({"x": "z"})), "a") == "z"


@pytest.mark.parametrize("wrong", [{"(": "x"}, {"a": r"\1"}, {"a": 3}])
def test_remap_refuses_what_is_no_pattern(wrong: Any) -> None:
    with pytest.raises(BadSetting, match="remap"):
        remap(wrong)


def test_opfilter() -> None:
    rows = partly()
    assert [m.op for b in opfilter("insert", "delete")(rows) for m in messages_of(b)] == [Op.INSERT, Op.DELETE]
    assert [m.op for b in opfilter(but="delete")(rows) for m in messages_of(b)] == [Op.INSERT, Op.UPDATE]
    with pytest.raises(BadSetting, match="did you mean 'insert'"):
        opfilter("inserts")
    with pytest.raises(BadSetting, match="takes the ops to keep"):
        opfilter()


def test_pretty_prints_and_passes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert pretty()(orders())[0].equals(orders())
    out = capsys.readouterr().out
    assert out.startswith('{\n  "op": "insert",\n  "namespace": "public.orders",\n')
    pretty(0)(orders().slice(2))
    assert json.loads(capsys.readouterr().out)["data"] == {"id": 3, "card": "c", "n": "11"}


# -- skip
@pytest.mark.parametrize(
    ("value", "operator", "match", "kept"),
    [
        ("goodnight", "=~", "good", True),
        ("bad", "=~", "good", False),
        (10, ">", 10, False),
        (10, ">=", 10, True),
        ("10", "<=", 10, True),
        (10, "==", 10, True),
        (10, "==", "10", False),
        (True, "==", 1, False),
        (1, "==", True, False),
        (True, "==", True, True),
        (None, "==", None, True),
        (None, "<", 5, False),
        (5, "==", None, False),
        (2**53 + 1, "==", 2**53, False),
        (2**53 + 1, ">", float(2**53), True),
        (2.0**53, "==", 2**53 + 1, False),
        (1.5, "<", "1.6", True),
        (Decimal("1.10"), "==", Decimal("1.1"), True),
        (Decimal("0.1"), "<", 1, True),
        (dt.date(2024, 1, 2), ">=", "2024-01-02", True),
        (dt.datetime(2024, 1, 2, 3), "<", "2024-01-02", False),
        (dt.datetime(2024, 1, 2, tzinfo=dt.UTC), "==", "2024-01-02", True),
        (dt.time(3), "<", "04:00", True),
    ],
)
def test_skip_keeps_what_matches(value: Any, operator: str, match: Any, kept: bool) -> None:
    rows = make_rows("t", pa.record_batch({"id": [1], "f": [value]}), ["id"])
    assert only(skip("f", operator, match)(rows)).num_rows == kept


@pytest.mark.parametrize(
    ("value", "operator", "match"),
    [
        ("ten", "<=", 10),
        (float("nan"), "<", 5),
        (True, "<=", 10),
        (b"10", "<", 5),
        ([1], ">", 0),
        (5, "=~", "5"),
        (dt.date(2024, 1, 1), ">", 5),
    ],
)
def test_what_cannot_be_compared_is_an_error_of_that_message(value: Any, operator: str, match: Any) -> None:
    rows = make_rows("t", pa.record_batch({"id": [1, 2], "f": pa.array([None, value])}), ["id"])
    with pytest.raises(BadInput, match="skip on 'f'") as told:
        skip("f", operator, match)(rows)
    assert told.value.row == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("operator", "match", "hint"),
    [
        ("!=", 1, "no operator '!='; there are: == =~ > >= < <="),
        ("=~", "(", "not a regular expression"),
        ("=~", "(?=a)", "not a regular expression of RE2"),
        ("=~", 5, "not a regular expression"),
        ("<", "ten", "number or a time"),
        ("<", True, "number or a time"),
    ],
)
def test_a_wrong_skip_is_refused_when_it_is_built(operator: str, match: Any, hint: str) -> None:
    with pytest.raises(BadSetting, match=hint.replace("(", r"\(")):
        skip("f", operator, match)


def test_a_delete_without_the_field_passes() -> None:
    """What it deletes may have been let through when it was inserted."""
    assert [m.id for b in skip("n", "==", 5)(partly()) for m in messages_of(b)] == ["1", "3"]
    assert [m.id for b in skip("no such", "==", 5)(partly()) for m in messages_of(b)] == ["3"]


def test_a_field_of_mixed_types() -> None:
    rows = each(lambda m: m)(make_rows("t", pa.record_batch({"id": [1, 2, 3]}), ["id"]))[0]
    values: dict[int, Any] = {1: "10", 2: 9, 3: 11}
    mixed = each(lambda m: Message(m.op, "t", m.id, {"id": m.data["id"], "f": values[m.data["id"]]}, keys=("id",)))(
        rows
    )
    assert [m.id for b in skip("f", "<=", 10)(mixed[0]) for m in messages_of(b)] == ["1", "2"]


_COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6).map(
        lambda v: pa.array(v, pa.int64())
    ),
    st.lists(st.none() | st.floats(), min_size=1, max_size=6).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.sampled_from(["10", "-1.5", "x", "", "good"]), min_size=1).map(
        lambda v: pa.array(v, pa.string())
    ),
    st.lists(st.none() | st.booleans(), min_size=1, max_size=6).map(lambda v: pa.array(v, pa.bool_())),
)
_MATCHES = (
    st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.sampled_from(["10", "x", "", "good"]) | st.none()
)


@given(_COLUMNS, st.sampled_from(OPERATORS), _MATCHES)
@settings(max_examples=400, deadline=None)
def test_a_column_at_once_is_as_one_by_one(column: pa.Array[Any], operator: str, match: Any) -> None:
    try:
        made = skip("f", operator, match)
    except BadSetting:
        return
    values = column.to_pylist()
    try:
        expected: Any = [matches(value, operator, match) for value in values]
    except BadInput:
        expected = None
    rows = make_rows("t", pa.record_batch({"id": range(len(values)), "f": column}), ["id"])
    try:
        kept = columns_of(made(rows)[0]).column("id").to_pylist()
        assert expected is not None
        assert kept == [n for n, is_kept in enumerate(expected) if is_kept]
    except BadInput:
        assert expected is None


# -- one's own
def test_each_changes_drops_and_moves_messages() -> None:
    def work(message: Message) -> Message | None:
        if message.data["id"] == 2:
            return None
        message.data["total"] = message.data["id"] * 2
        message.namespace = "big" if message.data["id"] > 2 else message.namespace
        return message

    out = each(work)(orders())
    assert [(namespace_of(b), data([b])) for b in out] == [
        ("public.orders", [{"id": 1, "card": "a", "n": "10", "total": 2}]),
        ("big", [{"id": 3, "card": "c", "n": "11", "total": 6}]),
    ]
    assert [(m.mode, m.timestamp) for b in out for m in messages_of(b)] == [(Mode.SYNC, 7)] * 2


def test_each_keeps_types() -> None:
    columns = pa.record_batch(
        {
            "id": pa.array([1], pa.int16()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "t": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\x00"], pa.large_binary()),
            "none": pa.array([None], pa.float32()),
        }
    )
    rows = make_rows("t", columns, ["id"])
    assert each(lambda m: m)(rows)[0].schema.field("data").type == rows.schema.field("data").type


def test_an_error_says_which_message() -> None:
    def work(message: Message) -> Message:
        return message if message.data["id"] != 3 else 1 / 0  # type: ignore[return-value]

    with pytest.raises(ZeroDivisionError) as told:
        each(work)(orders())
    assert told.value.row == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("work", "hint"),
    [
        (lambda m: "text", "gave a str; it gives a message or None"),
        (lambda m: Message(m.op, m.namespace, m.id, {}, keys=m.keys), "took away 'id', which is part of the id"),
    ],
)
def test_each_refuses(work: Any, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        each(work)(orders())


def test_a_message_that_is_to_be_skipped_is() -> None:
    def work(message: Message) -> Message:
        message.op = Op.SKIP if message.data["id"] == 1 else message.op
        return message

    assert [d["id"] for d in data(each(work)(orders()))] == [2, 3]


def test_batch_gets_columns_and_gives_columns() -> None:
    def work(columns: pa.RecordBatch) -> pa.Table:
        kept = columns.filter(pc.greater(columns.column("id"), 1))
        return pa.table(kept.append_column("double", pc.multiply(kept.column("id"), 2)))

    out = only(batch(work)(orders()))
    assert [(m.id, m.data["double"], m.timestamp) for m in messages_of(out)] == [("2", 4, 7), ("3", 6, 7)]


def test_batch_may_change_the_id() -> None:
    out = only(batch(lambda c: c.set_column(0, "id", pc.add(c.column("id"), 10)))(orders()))
    assert [m.id for m in messages_of(out)] == ["11", "12", "13"]


def test_batch_may_give_an_unset_field_a_value() -> None:
    out = batch(lambda c: c.set_column(0, "card", pc.fill_null(c.column("card"), "none")))(partly())
    assert data(out)[2] == {"card": "none", "id": 3}


@pytest.mark.parametrize(
    ("work", "hint"),
    [
        (lambda c: c.drop_columns(["_row"]).slice(1), "made 2 rows of 3; .* keeps the column _row"),
        (lambda c: c.drop_columns(["id"]), "take away 'id'"),
        (lambda c: 5, "gave a int; it gives an Arrow record batch"),
    ],
)
def test_batch_refuses(work: Any, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        batch(work)(orders())


def test_batch_may_give_nothing() -> None:
    assert batch(lambda c: None)(orders()) == []


# -- by name
def test_functions_by_name() -> None:
    written = [
        {"omit": "card"}, {"pick": ["id", "n"]}, {"rename": {"n": "m"}}, {"remap": {"a": "b"}}, {"pretty": 0},
        {"skip": ["n", "<=", 10]}, {"skip": {"field": "n", "operator": "<=", "match": 10}}, {"opfilter": ["insert"]},
        {"opfilter": {"but": ["delete"]}},
    ]  # fmt: skip
    expected = [
        omit("card"), pick("id", "n"), rename(n="m"), remap({"a": "b"}), pretty(0), skip("n", "<=", 10),
        skip("n", "<=", 10), opfilter("insert"), opfilter("insert", "update"),
    ]  # fmt: skip
    assert [function(one) for one in written] == expected
    assert pickle.loads(pickle.dumps(expected)) == expected


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ({"omitt": "a"}, "did you mean 'omit'"),
        ({"omit": "a", "pick": "b"}, "one name in it"),
        ({"skip": {"feld": 1}}, "skip: .*feld"),
        ({"skip": ["a"]}, "skip: .*missing"),
        ({"omit": 3}, "names of fields"),
        ("omit", "not str"),
        (3, "not int"),
        ("file:x.py", "write file:path.py:name"),
        ("file:no_such.py:f", "no file"),
    ],
)
def test_what_is_no_function_is_refused(written: Any, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        function(written)


def test_functions_from_files(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from tailrace.pipeline.functions import batch\n"
        "@dataclass\nclass Rate:\n    value: 'int' = 2\n"
        "def enrich(message):\n    message.data['x'] = Rate().value\n    return message\n"
        "columns = batch(lambda c: c)\n"
    )
    assert data(function("file:mine.py:enrich", tmp_path)(orders()))[0]["x"] == 2
    assert data(function({"each": "file:mine.py:enrich"}, tmp_path)(orders()))[0]["x"] == 2
    assert data(function(f"file:{tmp_path}/mine.py:columns")(orders())) == data([orders()])
    with pytest.raises(BadSetting, match="did you mean 'enrich'"):
        function("file:mine.py:enrch", tmp_path)


@pytest.mark.parametrize(("text", "hint"), [("x = (\n", "line 1"), ("\n\n1/0\n", "line 3: ZeroDivisionError")])
def test_a_file_that_does_not_run(tmp_path: Path, text: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for folder in tmp_path, Path():
        with pytest.raises(BadInput, match=rf"bad\.py, {hint}"):
            function("file:bad.py:f", folder)


def test_functions_of_files_travel_with_their_code(tmp_path: Path) -> None:
    """A Spark task on another machine has no such file."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    (tmp_path / "mine.py").write_text("RATE = 3\ndef f(m):\n    m.data['x'] = RATE\n    return m\n")
    sent = cloudpickle.dumps(function("file:mine.py:f", tmp_path))
    assert not [name for name in sys.modules if name.startswith("tailrace_file_")]
    (tmp_path / "mine.py").unlink()
    assert data(pickle.loads(sent)(orders()))[0]["x"] == 3


def test_a_field_that_is_named_like_the_column_of_rows() -> None:
    rows = make_rows("t", pa.record_batch({"id": [1, 2, 3], "_row": ["a", "b", "c"]}), ["id"])
    seen: list[list[str]] = []

    def odd(columns: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(columns.schema.names)
        return columns.filter(pc.not_equal(columns.column("id"), 2))

    (out,) = batch(odd)(rows)
    assert seen == [["id", "_row", "__row"]]
    assert columns_of(out).to_pylist() == [{"id": 1, "_row": "a"}, {"id": 3, "_row": "c"}]


# -- places
def forged(message: Message) -> Message:
    message.place = Place(9, 9, 9, 9)
    return message


def made_anew(message: Message) -> Message:
    return Message(message.op, message.namespace, message.id, message.data, keys=message.keys)


def lasting(message: Message, kept: list[Message] = []) -> Message:  # noqa: B006
    """Always the same one."""
    kept.append(message)
    return dataclasses.replace(kept[0], place=kept[-1].place)


def reversed_rows(columns: pa.RecordBatch) -> pa.RecordBatch:
    return columns.take(pa.array([2, 0]))


@pytest.mark.parametrize(
    "made",
    [
        omit("card"), pick("n"), rename(id="number"), remap({"public.orders": "o"}), skip("n", ">=", 0),
        opfilter("insert"), each(lambda m: m), each(forged), each(made_anew), each(lasting), batch(lambda c: c),
        batch(lambda c: c.drop_columns(["card"])), batch(reversed_rows),
    ],
)  # fmt: skip
def test_no_function_changes_where_a_message_stands(made: Any) -> None:
    numbers = {"transaction": pa.array([7, 7, 8], pa.int64()), "position": pa.array([0, 1, 0], pa.int64())}
    given = placed(orders(**numbers, open=True), 3, pa.array([40, 41, 50]))
    expected = [Place(3, 40, 7, 0), Place(3, 41, 7, 1), Place(3, 50, 8, 0)]
    out = only(made(given))
    assert places_of(out) == ([expected[2], expected[0]] if out.num_rows == 2 else expected)
    assert [m.place for m in messages_of(out)] == places_of(out)
    assert is_open(out.schema), "nor that its namespace has no fixed set of fields"
    assert not is_open(only(made(orders())).schema)


def test_a_function_can_see_where_a_message_stands() -> None:
    seen: list[Place] = []
    each(lambda message: seen.append(message.place))(placed(orders(), 3, pa.array([40, 41, 50])))
    assert seen == [Place(3, offset) for offset in (40, 41, 50)]
