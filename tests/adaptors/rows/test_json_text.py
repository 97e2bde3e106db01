"""JSON text that every reader of JSON takes, whatever the numbers."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from tailrace.adaptors.rows.json_text import finite, json_objects, plain, printed
from tailrace.adaptors.rows.rows import make_rows

ODD = [math.nan, math.inf, -math.inf, 1.5, None]
TOLD = ["NaN", "Infinity", "-Infinity", 1.5, None]


def none(name: str) -> None:
    pytest.fail(f"{name} is no JSON")


def test_numbers_that_json_does_not_have_are_texts_however_deep() -> None:
    columns = pa.record_batch({"v": pa.array(ODD), "deep": pa.array([{"list": [v, v]} for v in ODD])})
    found = [json.loads(text, parse_constant=none) for text in json_objects(columns)]
    assert [row["v"] for row in found] == TOLD
    assert [row["deep"]["list"] for row in found] == [[v, v] for v in TOLD]
    rows = make_rows("t", columns, [])
    assert [json.loads(text)["data"]["deep"] for text in printed(rows, 0)] == [{"list": [v, v]} for v in TOLD]


def test_what_is_no_number_stays() -> None:
    assert finite({"a": (1, "Infinity", b"x", [None])}) == {"a": [1, "Infinity", b"x", [None]]}


def test_intervals_are_iso_8601_however_deep() -> None:
    kind, interval, text = pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3_000_000_000]), "P1M2DT3S"
    made = {
        "v": pa.array([interval], kind),
        "list": pa.array([[interval, None]], pa.list_(kind)),
        "deep": pa.array([{"inner": [interval]}], pa.struct([("inner", pa.list_(kind))])),
        "map": pa.array([[("a", interval)]], pa.map_(pa.string(), kind)),
    }
    told = {"v": text, "list": [text, None], "deep": {"inner": [text]}, "map": [["a", text]]}
    columns = pa.record_batch(made)
    assert [json.loads(found) for found in json_objects(columns)] == [told]
    assert [json.loads(found)["data"] for found in printed(make_rows("t", columns, []), 0)] == [told]
    assert plain(columns.to_pylist()) == [told]
