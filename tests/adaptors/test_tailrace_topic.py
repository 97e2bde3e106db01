"""Topics as source and sink: the contracts, and what only topics do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Staged, Who
from tailrace.adaptors.rows import make_rows, messages_of
from tailrace.adaptors.tailrace_topic import writing
from tailrace.adaptors.tailrace_topic.reading import TopicReader
from tailrace.adaptors.tailrace_topic.records import topic_name
from tailrace.adaptors.tailrace_topic.settings import TopicSink, TopicSource
from tailrace.adaptors.tailrace_topic.writing import TopicWriter
from tailrace.errors import Fenced, PositionLost
from tailrace.home import Home
from tailrace.log.record import Mode, Op
from tailrace.log.retention import raise_floor
from tailrace.log.topic import Topic
from tailrace.pipeline.commitlog import CommitLog
from tailrace.testing.adaptorcontract import ReaderContract, WriterContract
from tailrace.testing.readercontract import Following

WHO = Who("pipeline", "writer", 1)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as opened:
        yield opened


class Decoded(TopicReader):
    """Documents as the contract wants them: the JSON value of a record."""

    def copy(self, piece: Any) -> Iterator[pa.RecordBatch]:
        yield from map(_decoded, super().copy(piece))

    def follow(self, position: Any, namespaces: Sequence[str], state: Any) -> Iterator[Any]:
        for changes in super().follow(position, namespaces, state):
            yield type(changes)([_decoded(b) for b in changes.rows], changes.position, changes.committed_at)


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    messages = list(messages_of(batch))
    columns = pa.RecordBatch.from_pylist([json.loads(m.data["value"]) for m in messages])
    return make_rows(messages[0].namespace, columns, ["id"], mode=messages[0].mode)


class Records:
    namespace = "orders"

    def __init__(self, home: Home) -> None:
        self.home, self.topic = home, home.topic("orders", 1)

    def reader(self) -> TopicReader:
        return Decoded(TopicSource(home=self.home.url, poll_seconds=0.01))

    def add(self, documents: Sequence[dict[str, Any]]) -> None:
        self.topic.append([(str(d["id"]).encode(), json.dumps(d).encode()) for d in documents])


class TestReader(ReaderContract):
    @pytest.fixture
    def source(self, home: Home) -> Records:
        return Records(home)


class Appended:
    namespace = "public.orders"

    def __init__(self, home: Home) -> None:
        self.home = home

    def writer(self) -> TopicWriter:
        return TopicWriter(TopicSink(home=self.home.url, partitions=3))

    def documents(self) -> list[dict[str, Any]]:
        if "public-orders" not in self.home.topics():
            return []
        return [json.loads(record.value or b"{}") for record in self.home.topic("public-orders").records()]


class TestWriter(WriterContract):
    upserts = deletes = False

    @pytest.fixture
    def sink(self, home: Home) -> Appended:
        return Appended(home)

    def test_a_higher_epoch_may_go_back(self, sink: Appended) -> None:  # type: ignore[override]
        writer = sink.writer()
        for epoch, offset in ((1, 9), (2, 3)):
            writer.finish([writer.stage([rows(1)])], Who("p", "w", epoch), {"0": offset})
        assert len(sink.documents()) == 2


def rows(count: int, **settings: Any) -> pa.RecordBatch:
    columns = pa.record_batch({"id": list(range(count)), "text": [f"text {n}" for n in range(count)]})
    return make_rows("public.orders", columns, ["id"], **settings)


def written(writer: TopicWriter, *batches: pa.RecordBatch, offsets: dict[str, Any]) -> list[Staged]:
    staged = [writer.stage(batches)]
    writer.finish(staged, WHO, offsets)
    return staged


def test_a_record_has_the_id_the_document_and_the_op(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    written(writer, rows(2, op=Op.UPDATE, mode=Mode.SYNC, timestamp=7), rows(1, op=Op.DELETE), offsets={"0": 3})
    first, _, gone = home.topic("public-orders").records()
    assert (first.key, first.op, first.mode, first.timestamp) == (b"0", Op.UPDATE, Mode.SYNC, 7)
    assert json.loads(first.value or b"") == {"id": 0, "text": "text 0"}
    assert (gone.key, gone.value, gone.op) == (b"0", None, Op.DELETE)


def test_many_small_batches_take_as_long_as_they_are_many(home: Home) -> None:
    def seconds(many: int) -> float:
        writer, began = TopicWriter(TopicSink(home=home.url, topic="all")), time.process_time()
        writer.stage(make_rows("orders", pa.record_batch({"id": [n]}), ["id"]) for n in range(many))
        return time.process_time() - began

    seconds(10)
    assert seconds(1600) < 30 * seconds(200)


def test_one_topic_for_all_namespaces_says_which(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, topic="all", partitions=1))
    writer.check()
    written(writer, rows(1), offsets={"0": 1})
    (record,) = home.topic("all").records()
    assert record.key == b"public.orders\x000"
    assert record.headers == (("namespace", b"public.orders"),)


def test_from_topic_to_topic_records_stay_as_they_are(home: Home) -> None:
    source = home.topic("in", 2)
    with source.producer() as out:
        out.send(b"a", b"\xff\x00", headers={"h": b"1"}, timestamp=5, op=Op.DELETE)
        out.send(None, None, timestamp=6)
    reader = TopicReader(TopicSource(home=home.url))
    batches = [b for piece in reader.pieces("in", 100) for b in reader.copy(piece)]
    writer = TopicWriter(TopicSink(home=home.url, topic="out", partitions=2))
    written(writer, *batches, offsets={"0": 1})
    copies = sorted((r.key or b"", r.value, r.timestamp, r.headers, r.op) for r in home.topic("out").records())
    assert copies == [(b"", None, 6, (), Op.INSERT), (b"a", b"\xff\x00", 5, (("h", b"1"),), Op.DELETE)]


def test_all_topics_of_a_batch_or_none(home: Home) -> None:
    """One transaction: after a batch that was refused no topic has any of it."""
    writer = TopicWriter(TopicSink(home=home.url))
    other = make_rows("people", pa.record_batch({"id": [1]}), ["id"])
    written(writer, rows(3), other, offsets={"0": 4})
    late = [writer.stage([rows(3), other])]
    with pytest.raises(tailrace.errors.Fenced):
        writer.finish(late, WHO, {"0": 2})
    assert [sum(1 for _ in home.topic(name).records()) for name in ("public-orders", "people")] == [3, 1]


def test_a_pipelines_own_topics_are_left_out(home: Home) -> None:
    CommitLog(home, "shop").begin(None)
    home.topic("shop-dead", 1)
    home.topic("catalog-log", 1)
    reader = TopicReader(TopicSource(home=home.url))
    assert [namespace.name for namespace in reader.namespaces()] == ["catalog-log"]


def test_a_topic_that_comes_later_is_offered_and_followed_from_its_start(home: Home) -> None:
    home.topic("first", 1)
    reader = TopicReader(TopicSource(home=home.url, poll_seconds=0.01, discover=0.1))
    changes = reader.follow(reader.begin(["first"]), ["first"], {})
    home.topic("second", 1).append([(b"k", b"before it was seen")])
    while not (seen := next(changes)).appeared:
        pass
    assert seen.appeared == ["second"]
    (piece,) = reader.pieces("second", 10)
    assert list(reader.copy(piece)) == []
    while not (seen := next(changes)).rows:
        pass
    assert [m.data["value"] for m in messages_of(seen.rows[0])] == [b"before it was seen"]
    again = TopicReader(TopicSource(home=home.url))
    again.begun(seen.position)
    assert [list(again.copy(p)) for p in again.pieces("second", 10)] == [[]]


def test_a_topic_made_again_is_another(home: Home) -> None:
    home.topic("orders", 1).append([(None, b"old")])
    reader = TopicReader(TopicSource(home=home.url, poll_seconds=0.01))
    position = reader.begin(["orders"])
    pieces = reader.pieces("orders", 10)
    home.delete_topic("orders")
    home.topic("orders", 1).append([(None, b"new")])
    with pytest.raises(PositionLost, match="made again"):
        list(reader.copy(pieces[0]))
    follower = Following(TopicReader(TopicSource(home=home.url, poll_seconds=0.01)), position, "orders")
    (message,) = follower.until(bool)
    assert message.data["value"] == b"new"


@pytest.mark.parametrize(("namespace", "topic"), [("public.orders", "public-orders"), ("a", "a"), ('x."é"', "x-")])
def test_names_of_topics(namespace: str, topic: str) -> None:
    assert topic_name(namespace) == topic


def test_a_truncate_is_a_command_in_every_partition(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=3))
    writer.command("public.orders", "truncate", WHO)
    found = [(r.partition, r.op, r.value) for r in home.topic("public-orders").records()]
    assert sorted(found) == [(q, Op.COMMAND, b"truncate") for q in range(3)]


def test_a_command_misses_no_partition_of_a_topic_that_grows_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TopicWriter(TopicSink(home=home.url, topic="t", partitions=3))
    writer.check()
    ends = Topic.ends

    def seen_just_before(topic: Topic) -> dict[int, tuple[int, int]]:
        found = ends(topic)
        home.topic("t").grow(5)
        return found

    monkeypatch.setattr(Topic, "ends", seen_just_before)
    writer.command("orders", "truncate", WHO)
    assert sorted(r.partition for r in home.topic("t").records()) == list(range(5))


def test_a_run_that_is_followed_while_it_sends_a_command_sends_none(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TopicWriter(TopicSink(home=home.url, topic="t", partitions=3))
    writer.claim(WHO)
    put = writing.place

    def followed(*args: Any) -> Any:
        writer.claim(WHO._replace(epoch=2))
        return put(*args)

    monkeypatch.setattr(writing, "place", followed)
    with pytest.raises(Fenced):
        writer.command("orders", "truncate", WHO)
    assert list(home.topic("t").records()) == []


class Overtaken(TopicWriter):
    """A writer that is stalled between its look at what is finished and its commit, while another finishes."""

    other: TopicWriter

    def _placed(self, staged: Sequence[Staged]) -> list[Any]:
        self.other.finish([self.other.stage([rows(3)])], WHO, {"0": 1})
        return super()._placed(staged)


@pytest.mark.parametrize("offset", [1, 2])
def test_two_that_finish_at_once_do_so_once(home: Home, offset: int) -> None:
    stalled = Overtaken(TopicSink(home=home.url))
    stalled.other = TopicWriter(TopicSink(home=home.url))
    staged = [stalled.stage([rows(3)])]
    with pytest.raises(tailrace.errors.Fenced, match="another run of the writer 'writer' has finished a batch"):
        stalled.finish(staged, WHO, {"0": offset})
    assert sum(1 for _ in home.topic("public-orders").records()) == 3
    assert stalled.restore("pipeline", "writer") == {"epoch": 1, "offsets": {"0": 1}}


def test_a_run_thought_dead_finishes_nothing_more(home: Home) -> None:
    old, new = TopicWriter(TopicSink(home=home.url)), TopicWriter(TopicSink(home=home.url))
    assert old.claim(WHO) is None
    written(old, rows(1), offsets={"0": 5})
    assert new.claim(WHO._replace(epoch=2)) == {"epoch": 2, "offsets": {"0": 5}}
    for act in (lambda: written(old, rows(1), offsets={"0": 9}), lambda: old.claim(WHO)):
        with pytest.raises(tailrace.errors.Fenced, match="another run of the writer 'writer' has begun"):
            act()
    new.finish([new.stage([rows(1)])], WHO._replace(epoch=2), {"0": 3})  # an operator has gone back
    assert sum(1 for _ in home.topic("public-orders").records()) == 2


def test_offsets_are_kept_where_nothing_is_appended(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url))
    writer.finish([], WHO, {"0": 5})
    assert writer.restore("pipeline", "writer") == {"epoch": 1, "offsets": {"0": 5}}


def test_records_that_retention_has_removed(home: Home) -> None:
    """A copy goes without them; to follow from before them is to lose them, and is said."""
    topic = home.topic("orders", 1)
    topic.append([(None, b"%d" % n) for n in range(5)])
    reader = TopicReader(TopicSource(home=home.url, poll_seconds=0.01))
    pieces = reader.pieces("orders", 2)
    position = {"orders": [topic.id, {}, {"0": 1}]}
    home.store.run(raise_floor(topic.log, {0: 3}))
    values = [m.data["value"] for p in pieces for b in reader.copy(p) for m in messages_of(b)]
    assert values == [b"3", b"4"]
    with pytest.raises(PositionLost, match=r"offset 1 .* was removed.*only a fresh copy"):
        list(zip(range(5), reader.follow(position, ["orders"], {}), strict=False))
