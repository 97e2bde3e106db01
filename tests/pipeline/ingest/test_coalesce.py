"""Joining: the same records in fewer runs, each namespace in order, and never too much at a time."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.adaptors.rows.rows import make_rows, namespace_of
from tailrace.log.read.fetched import Fetched
from tailrace.pipeline.ingest import coalesce
from tailrace.pipeline.ingest.coalesce import Chained, joined


def run(at: int, namespace: str, column: str, count: int) -> Fetched:
    return Fetched(3, at, make_rows(namespace, pa.record_batch({column: [*range(at, at + count)]}), [column]))


def rows(some: list[Fetched]) -> dict[str, list[tuple[int, int, str]]]:
    """Of each namespace: offset, value, column."""
    out = defaultdict(list)
    for one in some:
        data = one.data.column("data")
        name = data.type.field(0).name
        values = data.field(0).to_pylist()
        out[namespace_of(one.data)] += list(zip(one.offsets.to_pylist(), values, [name] * len(values), strict=True))
    return out


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 9), st.integers(0, 2))),
    st.sampled_from([300, 100_000]),
)
def test_every_record_once_and_each_namespace_in_order(given: list[tuple[str, str, int, int]], held: int) -> None:
    runs, at = [], 0
    for namespace, column, count, gap in given:
        runs.append(run(at, namespace, column, count))
        at += count + gap
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalesce, "MAX_ROWS", 12)
        patch.setattr(coalesce, "MAX_HELD_BYTES", held)
        found = list(joined(runs))
    assert rows(found) == rows(runs)
    assert all(one.data.num_rows <= 12 and one.partition == 3 for one in found)
    assert all(one.offset == one.offsets[0].as_py() for one in found)


def test_runs_that_come_in_turn_become_one_of_each_namespace() -> None:
    found = list(joined(run(n, "ab"[n % 2], "x", 1) for n in range(2000)))
    assert [(namespace_of(one.data), one.data.num_rows) for one in found] == [("a", 1000), ("b", 1000)]


def test_no_more_than_so_many_rows_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "MAX_ROWS", 12)
    assert [one.data.num_rows for one in joined(run(5 * n, "a", "x", 5) for n in range(5))] == [10, 10, 5]


def test_what_is_large_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "MAX_ROWS", 10)
    small, large, after = run(0, "a", "x", 1), run(1, "a", "x", 5), run(6, "a", "x", 1)
    found = list(joined([small, large, after]))
    assert found == [small, large, after]
    assert found[1] is large


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_HELD_BYTES"])
def test_no_more_than_so_many_bytes_wait(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(coalesce, limit, 4096)
    taken, most = 0, 0

    def runs() -> object:
        nonlocal taken
        for n in range(500):
            taken += 1
            yield run(n, f"n{n % 4 if limit == 'MAX_HELD_BYTES' else 0}", "x", 1)

    given = 0
    for one in joined(runs()):  # type: ignore[arg-type]
        most = max(most, taken - given)
        given += one.data.num_rows
    assert given == 500
    assert most < 200


def test_lists_of_batches_as_one() -> None:
    some = [pa.record_batch({"n": pa.array([n])}) for n in range(6)]
    whole = Chained([some[:1], [], some[1:4], some[4:]])
    assert list(whole) == some
    assert (len(whole), whole[-1], whole[-6], whole[3], whole[2:5]) == (6, some[5], some[0], some[3], some[2:5])
    with pytest.raises(IndexError):
        whole[6]
    assert not Chained([])
