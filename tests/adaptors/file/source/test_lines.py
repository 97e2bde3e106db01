"""Whole rows of text files, however they are cut."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.adaptors.file.source import lines

ROWS = st.lists(st.lists(st.text('ab"\n\r,', max_size=6), min_size=2, max_size=2), max_size=12)


def as_csv(rows: list[list[str]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def parsed(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


@given(ROWS, st.integers(1, 40), st.integers(1, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_cuts_of_csv_are_between_rows(tmp_path: Path, rows: list[list[str]], size: int, block: int) -> None:
    data = as_csv(rows)
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        assert lines.whole(path, delimiter=",") == len(data)
        cuts = lines.cuts(path, len(data), size, delimiter=",")
        read = [d for _, d in lines.blocks(path, 0, len(data), delimiter=",")]
    assert [row for a, b in cuts for row in parsed(data[a:b])] == parsed(data)
    assert [a for a, _ in cuts[1:]] == [b for _, b in cuts[:-1]]
    assert [row for d in read for row in parsed(d)] == parsed(data)


@given(st.binary(max_size=60), st.integers(1, 30), st.integers(1, 9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_cuts_of_lines(tmp_path: Path, data: bytes, size: int, block: int) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    whole = data.rfind(b"\n") + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        assert lines.whole(path, delimiter=None) == whole
        cuts = lines.cuts(path, whole, size, delimiter=None)
        assert b"".join(d for _, d in lines.blocks(path, 0, len(data), delimiter=None)) == data[:whole]
        assert b"".join(d for _, d in lines.blocks(path, 0, len(data), delimiter=None, rest=True)) == data
    assert b"".join(data[a:b] for a, b in cuts) == data[:whole]
    assert all(data[b - 1 : b] == b"\n" for _, b in cuts)
    assert all(b - a >= size for a, b in cuts[:-1])


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        (b'5" pipe,a\nx\n', [10, 12]),
        (b'a,"b\nc"\n', [8]),
        (b'a,"b\nc', []),
        (b'a, "b\nc"\n', [6, 9]),
        (b'"a""\n",b\n"c"\n', [9, 13]),
        (b"\n\n", [1, 2]),
    ],
)
def test_only_a_value_in_quotes_holds_ends_of_lines(data: bytes, ends: list[int]) -> None:
    assert list(lines.row_ends(data, ",")) == ends


def test_line_numbers_are_as_an_editor_has_them(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\nb\n\nc")
    assert [lines.line_number(path, at) for at in (0, 2, 4, 5)] == [1, 2, 3, 4]


def test_a_row_without_end_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 100)
    monkeypatch.setattr(lines, "BLOCK", 50)
    path = tmp_path / "x"
    path.write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match=r"a row of more than .* at byte 0; is this the right format"):
        list(lines.blocks(path, 0, 1000, delimiter=None))


@pytest.mark.parametrize("delimiter", [None, ","])
def test_a_long_row_is_searched_a_few_times_not_once_a_block(
    tmp_path: Path, delimiter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, searched = tmp_path / "long", []
    path.write_bytes(b'"' + b"x" * (40 * lines.BLOCK // 4) + b'"\nb\n')
    real = lines.last_end
    monkeypatch.setattr(lines, "last_end", lambda data, mark: searched.append(len(data)) or real(data, mark))
    size = path.stat().st_size
    assert b"".join(data for _, data in lines.blocks(path, 0, size, delimiter=delimiter)) == path.read_bytes()
    assert sum(searched) <= 3 * size
