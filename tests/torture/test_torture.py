"""Awkward tables, writers that do everything, kills at random: row by row the same in the end.

make soak                                                      ten seeds of ten minutes, among the other soaks
TORTURE_SEED=7 TORTURE_MINUTES=2 pytest -m soak -s tests/torture    one of them again, shorter
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.file.settings import FileSink
from tailrace.adaptors.file.sink.writer import FileWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.log.record import Op
from tests.torture.actions import ROWS, TABLES, Book, Plan
from tests.torture.comparison import differs
from tests.torture.scenario import Scenario
from tests.torture.schema import tables
from tests.torture.sinks import Fold, Shape, as_text, parquet
from tests.torture.writer import Writer, owned

MINUTES = float(os.environ.get("TORTURE_MINUTES", "10"))
SEEDS = [int(os.environ["TORTURE_SEED"])] if "TORTURE_SEED" in os.environ else range(10)


@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_some_tables_and_some_kills(tmp_path: Path) -> None:
    print(Scenario(1, tmp_path, few=8, rest=0.1).tell(10, most=3, pause=(1, 4)))


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_tables_and_many_kills(tmp_path: Path, seed: int) -> None:
    print(Scenario(seed, tmp_path).tell(MINUTES * 60))


def _plans(seed: int, number: int) -> list[tuple[str, list[str]]]:
    writer = Writer("", seed, number, owned(tables(), 3)[number])
    made: list[Plan] = []
    while len(made) < 400:
        for plan in writer.plans():
            plan.becomes()
            made.append(plan)
    return [(plan.name, plan.statements) for plan in made]


def test_a_seed_says_what_a_writer_does() -> None:
    assert _plans(1, 0) == _plans(1, 0)
    assert _plans(1, 0) != _plans(2, 0)
    assert _plans(1, 0) != _plans(1, 1)


def test_every_action_is_taken() -> None:
    taken = {word for seed in range(3) for n in range(3) for name, _ in _plans(seed, n) for word in name.split()}
    assert taken >= {*ROWS, *TABLES}


def test_there_are_many_awkward_tables() -> None:
    made = tables()
    assert len(made) >= 80
    assert len({table.namespace for table in made}) == len(made)
    rng = random.Random(0)
    for table in made:
        assert Book(rng, [table], first=0).pick() is table


class TestFold:
    KEYED = Shape("public", "t", (("id", "int"), ("v", "text")), ("id",), False)
    KEYLESS = Shape("public", "t", (("v", "text"),), (), False)

    def test_the_last_state_of_each_row_with_what_was_not_sent(self) -> None:
        fold = Fold(self.KEYED)
        fold.change(Op.INSERT, {"id": "1", "v": "a"})
        fold.change(Op.UPDATE, {"id": "1"})
        fold.change(Op.INSERT, {"id": "2", "v": "b"})
        fold.change(Op.DELETE, {"id": "2"})
        assert list(fold.rows()) == [{"id": "1", "v": "a"}]

    def test_two_equal_rows_are_two_rows(self) -> None:
        fold = Fold(self.KEYLESS)
        for _ in range(3):
            fold.change(Op.INSERT, {"v": "a"})
        fold.change(Op.DELETE, {"v": "a"})
        assert list(fold.rows()) == [{"v": "a"}] * 2
        fold.clear()
        assert not list(fold.rows())


def test_a_row_without_a_key_leaves_parquet_whatever_is_noted_beside_it(tmp_path: Path) -> None:
    """It comes by a copy, which no transaction is of, and goes by a change that has one."""
    writer, shape = FileWriter(FileSink(path=str(tmp_path))), TestFold.KEYLESS
    for n, op in enumerate((Op.INSERT, Op.DELETE)):
        columns = pa.record_batch({"v": pa.array(["a"])})
        where = {"transaction": pa.array([n], pa.int64()), "position": pa.array([0], pa.int64())} if n else {}
        rows = make_rows("public.t", columns, [], op=pa.array([op], pa.uint8()), **where)
        staged = writer.stage([placed(rows, 0, pa.array([n], pa.int64()))])
        writer.finish([staged], Who("torture", "file", 1), {"0": n})
        assert parquet(tmp_path, "public.t", shape) == ([] if n else [{"v": "a"}])


def test_a_difference_says_what_is_lacking_and_what_is_too_much() -> None:
    assert differs("sink", "t", ["(1)", "(2)"], ["(2)", "(1)"]) == []
    (found,) = differs("sink", "t", ["(1)", "(1)"], ["(1)", "(3)"])
    assert (found.lacks, found.has) == (["(1)"], ["(3)"])
    (absent,) = differs("sink", "t", ["(1)"], None)
    assert "no such table" in str(absent)


def test_values_are_written_as_the_server_reads_them() -> None:
    assert as_text([1, None, 'a"b\\']) == '{"1",NULL,"a\\"b\\\\"}'
    assert as_text(b"\x00\xff") == "\\x00ff"
