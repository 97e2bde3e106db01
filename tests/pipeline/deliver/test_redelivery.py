"""Redelivery: of a batch that failed, the messages that fail are found and the others delivered, in few batches."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.adaptors.contract import Who
from tailrace.adaptors.file.sink.current import current
from tailrace.adaptors.rows.message import Message
from tailrace.adaptors.rows.rows import make_rows
from tailrace.pipeline.define.definition import SinkDefinition
from tailrace.pipeline.deliver.delivery import Branch, DeliveryRange, Outcome
from tailrace.pipeline.deliver.offsets import Mark
from tailrace.pipeline.deliver.redelivery import Span, clipped, halved, redeliver
from tailrace.pipeline.functions import each
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.pipeline.run.runner import Runner
from tailrace.pipeline.runtime.open_topics import open_home
from tests.pipeline.shop import definition
from tests.pipeline.toys import delivered_files

TABLE = "shop.orders"


def span(*ranges: tuple[int, int, int]) -> Span:
    return [DeliveryRange(*one, Mark(one[1] - 1)) for one in ranges]


def bounds(spans: list[Span]) -> list[list[tuple[int, int, int]]]:
    return [[(part.partition, part.start, part.end) for part in one] for one in spans]


def test_a_span_is_halved_by_partitions_and_then_by_offsets() -> None:
    assert bounds(list(halved(span((0, 0, 9), (1, 0, 9), (2, 0, 9))))) == [[(0, 0, 9)], [(1, 0, 9), (2, 0, 9)]]
    assert bounds(list(halved(span((0, 4, 7))))) == [[(0, 4, 5)], [(0, 5, 7)]]


def test_what_is_left_of_spans_goes_on_where_the_marks_are() -> None:
    spans = [span((1, 0, 9)), span((0, 5, 9)), span((0, 2, 5))]
    assert bounds(clipped(spans, {0: Mark(1), 1: Mark(-1)})) == bounds(spans)
    assert bounds(clipped(spans, {0: Mark(5), 1: Mark(8)})) == [[(0, 6, 9)]]
    assert clipped(spans, {0: Mark(0), 1: Mark(-1)}) == [], "0:1 would be passed"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> CommitLog:
    made = CommitLog(open_home(str(tmp_path_factory.mktemp("log") / "home")), "p", partitions=2)
    made.begin({"at": 0})
    made.take_in([make_rows(TABLE, pa.record_batch({"id": list(range(40)), "v": ["x"] * 40}), ["id"])], {"at": 1})
    return made


class Delivered:
    """All of a log, delivered again until nothing is left, or something stops it."""

    def __init__(self, log: CommitLog, path: Path, bad: set[int], how: str, policy: str, seconds: float = 10.0) -> None:
        path.mkdir()
        (path / "epoch").write_text("1")

        def refuse(message: Message) -> Message:
            if message.data["id"] in bad:
                raise ValueError(f"id {message.id}")
            return message

        where = (log.home.url, log.topic.name, "tests.pipeline.toys:sink", {"path": str(path)})
        branch = Branch("p", "w", *where, functions=(each(refuse),), on_error=policy, redeliver=how)
        self.marks = {q: Mark() for q in log.topic.ends()}
        spans = [[DeliveryRange(q, 0, end, self.marks[q].copy()) for q, (_, end) in log.topic.ends().items()]]
        self.outcome, self.skipped, self.slices = Outcome(), list[str](), 0
        while spans and self.outcome.trouble is None:
            self.outcome = redeliver(branch, spans, Who("p", "w", 1), self.marks, seconds)
            for q, reached in self.outcome.reached.items():
                self.marks[q].acknowledge(reached - 1)
            self.skipped += [trouble.id for trouble in self.outcome.skipped]
            self.slices += 1
            spans = clipped(self.outcome.left, self.marks)
        self.batches = [[row[1] for row in json.loads(p.read_text())["rows"]] for p in delivered_files(path)]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.integers(0, 39), max_size=5), st.sampled_from(["stop", "skip"]), st.sampled_from([0.01, 10.0]))
def test_halves_do_what_single_messages_do(
    log: CommitLog, tmp_path: Path, bad: set[int], policy: str, seconds: float
) -> None:
    at = tmp_path / str(time.monotonic_ns())
    at.mkdir()
    apart = Delivered(log, at / "singly", bad, "singly", policy)
    halves = Delivered(log, at / "halves", bad, "halves", policy, seconds)
    assert halves.marks == apart.marks
    assert halves.skipped == apart.skipped
    assert halves.outcome.trouble == apart.outcome.trouble
    assert sorted(chain(*halves.batches)) == sorted(chain(*apart.batches))
    assert all(len(batch) == 1 for batch in apart.batches)


def test_one_bad_message_costs_few_batches(log: CommitLog, tmp_path: Path) -> None:
    found = Delivered(log, tmp_path / "sink", {17}, "halves", "skip")
    assert found.skipped == ["17"]
    assert sum(map(len, found.batches)) == 39
    assert len(found.batches) <= 7


def test_20000_rows_of_which_one_is_bad(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(message: Message) -> Message:
        if message.data["id"] == 7_777:
            raise ValueError("this one")
        return message

    sink = SinkDefinition(
        "lake", "file", {"path": str(tmp_path / "lake")}, functions=(each(refuse),), on_error="dead_letter"
    )
    made = definition(tmp_path, sink, tables=(TABLE,), rows=20_000)
    runner = Runner(replace(made, piece_rows=20_000), spark)
    began = time.monotonic()
    runner.run(once=True)
    assert time.monotonic() - began < 60, "it took 2 minutes"
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) < 60, "there were 16,000"
    assert {row["id"] for row in current(tmp_path / "lake", TABLE)} == set(range(20_000)) - {7_777}
    assert runner.status.sinks["lake"].skipped == 1
