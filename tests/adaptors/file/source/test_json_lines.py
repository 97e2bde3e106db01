"""JSON lines by Arrow are what they are line by line, or are left to that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.adaptors.file.settings import FileSource
from tailrace.adaptors.file.source import json_lines
from tailrace.adaptors.file.source.json_lines import alike_columns, json_rows
from tailrace.adaptors.rows.rows import messages_of
from tailrace.log.record import Mode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = SCALARS | st.lists(st.integers(0, 9), max_size=2) | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))
UNIFORM = st.fixed_dictionaries(
    {"i": st.integers(-(2**63), 2**63 - 1), "s": st.text(), "f": st.floats(0, 1), "b": st.booleans()}
)
ODD = st.dictionaries(st.sampled_from(["i", "s", "x"]), VALUES, max_size=3)


def both(documents: list[dict[str, Any]]) -> tuple[Any, Any]:
    data = "".join(json.dumps(d) + "\n" for d in documents).encode()
    given = (Path("x"), 0, data, "t", FileSource(path="x"), Mode.COPY, 5)
    fast = [m for b in json_rows(*given) for m in messages_of(b)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "alike_columns", lambda data, keys: None)
        slow = [m for b in json_rows(*given) for m in messages_of(b)]
    return fast, slow


@given(st.lists(UNIFORM, min_size=1, max_size=8))
@settings(deadline=None)
def test_lines_that_are_alike(documents: list[dict[str, Any]]) -> None:
    fast, slow = both(documents)
    assert fast == slow
    data = "".join(json.dumps(d) + "\n" for d in documents).encode()
    assert alike_columns(data, ()) is not None


@given(st.lists(UNIFORM | ODD, max_size=8))
@settings(deadline=None, max_examples=300)
def test_lines_that_are_not(documents: list[dict[str, Any]]) -> None:
    fast, slow = both(documents)
    assert fast == slow


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}\n{"a": null}\n', b'{"a": 1}\n{"a": 1, "b": 2}\n', b'{"a": 1, "b": 1}\n{"a": 1}\n',
        b'{"a": 1}\n\n', b'{"a": 1}{"a": 2}\n', b'{"a": 1}\n[1]\n', b"{}\n", b'{"a": 1}\n{"a": "1"}\n',
        b'{"a": 99999999999999999999}\n',
    ],
)  # fmt: skip
def test_what_is_left_to_the_slow_way(data: bytes) -> None:
    assert alike_columns(data, ()) is None


def test_text_stays_text() -> None:
    columns = alike_columns(b'{"a": "2024-01-01T00:00:00Z", "b": "1"}\n', ())
    assert columns is not None
    assert columns.to_pylist() == [{"a": "2024-01-01T00:00:00Z", "b": "1"}]
