"""Bytes for people: JSON in lines without touching a digit, hex, and texts with nothing unseen."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.console.data import Base64
from tailrace.console.web import charts, formats, payload

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=50)
@given(DOCUMENTS)
def test_json_in_lines_is_the_same_json(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=1), json.dumps(document, ensure_ascii=False)):
        assert json.loads(payload.indented(text)) == document


def test_no_digit_of_a_number_is_touched() -> None:
    text = '{"a":9007199254740993,"b":1.10,"c":1e400,"d":[],"e":{ },"f":"{,}"}'
    assert payload.indented(text).split("\n") == [
        "{",
        '  "a": 9007199254740993,', '  "b": 1.10,', '  "c": 1e400,', '  "d": [],', '  "e": {},', '  "f": "{,}"', "}",
    ]  # fmt: skip


def test_bytes_are_shown_as_what_they_are() -> None:
    assert payload.view_of(Base64(b"\xff"), None) == "hex"
    assert payload.view_of('{"a": 1}', None) == "json"
    assert payload.view_of('{"a": ', None) == "text"
    assert payload.whole(Base64(b"\xffA"), "hex").endswith("|.A|")
    assert payload.brief("a\nb\x00" + "x" * 300).startswith("a b␀x")
    assert payload.brief(None) == "null"


@given(st.text())
def test_nothing_unseen_is_left(text: str) -> None:
    shown = formats.visible(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or c in "\u202a\u202e\u2066\u2069\u200f\x7f" for c in shown)


def test_two_keys_that_look_alike_do_not() -> None:
    for hidden in "\u200b\u00ad\u2060\u2028\u061c\U000e0041":
        assert formats.visible(f"ann{hidden}a") == f"ann⟨U+{ord(hidden):04X}⟩a"
    for joined in ("क\u200dष", "\U0001f469\u200d\U0001f692"):
        assert formats.visible(joined) == joined


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "250 ms"), (3.25, "3.2 s"), (60, "1 min"), (250, "4 min 10 s"), (7500, "2 h 5 min"),
     (273_600, "3 d 4 h"), (90_000_000, "1,041 d 16 h")],
)  # fmt: skip
def test_spans(seconds: float, text: str) -> None:
    assert formats.span(seconds) == text


def test_sizes_rates_and_times() -> None:
    assert [formats.size(n) for n in (0, 1023, 1536, 5 * 1024**3)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 GiB"]
    assert [formats.rate(n) for n in (None, 0.0, 4.7, 1234.5)] == [formats.UNKNOWN, "0/s", "4.7/s", "1,234/s"]
    assert formats.moment(0) == '<time datetime="1970-01-01T00:00:00.000Z">1970-01-01 00:00:00 UTC</time>'
    assert "<b>" not in formats.moment("<b>")
    assert "999" in formats.moment(10**18 - 1)


def test_a_chart_counts_one_and_many() -> None:
    shown = charts.chart([(0, 3.0), (10, 1.0)], "Backlog", " messages")
    assert "now 1 message<" in shown
    assert "highest 3 messages<" in shown
    assert "now 1 s<" in charts.chart([(0, 3.0), (10, 1.0)], "Age", " s")
    assert "highest 1 record</title>" in charts.sparkline([(0, 1.0), (10, 0.0)], "Lag", " records")


def test_json_that_is_deep_makes_no_page_that_is_huge() -> None:
    text = "[" * 500 + "1," * 120_000 + "1" + "]" * 500
    assert payload.is_json(text)
    shown = payload.whole(text, "json")
    assert len(shown) < 20 * len(text)
    assert json.loads(shown) == json.loads(text)


def test_what_is_left_out_is_counted() -> None:
    assert payload.whole("x" * 10, "text", 4) == "xxxx\n… 6 more characters; the API returns all"
    assert payload.whole("x" * 10, "text", 10) == "x" * 10
    assert payload.whole("[1,2]", "json", 4).startswith("[1,2\n… 1 more character")
    assert payload.whole(Base64(b"\xff" * 17), "hex", 16).endswith("|\n… 1 more byte; the API returns all")
    assert payload.whole(Base64(b"\xff" * 17), "text", 16).endswith("\n… 1 more byte; the API returns all")


def test_many_brackets_take_no_longer_than_many_letters() -> None:
    text = "[" * 400 + "[1]," * 60_000 + "1" + "]" * 400
    started = time.perf_counter()
    payload.indented(text)
    assert time.perf_counter() - started < 5
