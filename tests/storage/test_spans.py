"""Ranges that are fetched together give what they would give alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.storage.spans import cut, joined

RANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40)), max_size=8)


@given(ranges=RANGES, gap=st.integers(0, 30), size=st.integers(0, 150))
def test_what_is_cut_out_is_what_was_asked_for(ranges: list[tuple[int, int]], gap: int, size: int) -> None:
    data = bytes(range(size))
    spans = joined(ranges, gap)
    found = [memoryview(data)[start:end] for start, end in spans]
    for position, length in ranges:
        assert bytes(cut(spans, found, position, length)) == data[position : position + length]


@given(ranges=RANGES, gap=st.integers(0, 30))
def test_spans_are_apart_and_no_wider_than_needed(ranges: list[tuple[int, int]], gap: int) -> None:
    spans = joined(ranges, gap)
    assert all(b[0] > a[1] + gap for a, b in pairwise(spans))
    edges = {edge for position, length in ranges if length for edge in (position, position + length)}
    assert {edge for span in spans for edge in span} <= edges
