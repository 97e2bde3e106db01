"""Topics as source and sink: the contracts, and what only topics do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace
from tailrace.adaptors.contract import Command, Staged, Who
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows, messages_of
from tailrace.adaptors.topic.names import former_name, topic_name
from tailrace.adaptors.topic.settings import TopicSink, TopicSource
from tailrace.adaptors.topic.sink import manifest
from tailrace.adaptors.topic.sink import writer as writing
from tailrace.adaptors.topic.sink.writer import TopicWriter
from tailrace.adaptors.topic.source.reader import TopicReader
from tailrace.coordination import guard
from tailrace.errors import BadSetting, Fenced, NotReady, PositionLost, Rejected
from tailrace.home import Home
from tailrace.log.catalog import check_name
from tailrace.log.record import Mode, Op
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention import raise_floor
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.storage.tables import Delete, Key
from tailrace.testing.adaptorcontract import ReaderContract, WriterContract
from tailrace.testing.readercontract import FollowedReader
from tests.log.partitioning import keys_in_place

WHO = Who("pipeline", "writer", 1)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as opened:
        yield opened


class Decoded(TopicReader):
    """Documents as the contract wants them: the JSON value of a record."""

    def copy(self, piece: Any) -> Iterator[pa.RecordBatch]:
        yield from map(_decoded, super().copy(piece))

    def follow(self, position: Any, namespaces: Sequence[str], split: str = "") -> Iterator[Any]:
        for changes in super().follow(position, namespaces, split):
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
    changes = reader.follow(reader.begin(["first"]), ["first"])
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
    with pytest.raises(PositionLost, match="deleted and made again"):
        next(TopicReader(TopicSource(home=home.url)).follow(position, ["orders"]))


def test_a_topic_that_is_gone_for_a_while_is_new_when_it_comes_back(home: Home) -> None:
    home.topic("orders", 1).append([(None, b"old")])
    reader = TopicReader(TopicSource(home=home.url, poll_seconds=0.01, discover=0.1))
    follower = FollowedReader(reader, reader.begin(["orders"]), "orders")
    home.delete_topic("orders")
    follower.until(lambda _: not follower.position)
    home.topic("orders", 1).append([(None, b"new")])
    (message,) = follower.until(bool)
    assert message.data["value"] == b"new"


@pytest.mark.parametrize("between", ["named", "opened"])
def test_a_topic_that_is_deleted_before_it_is_looked_at(
    home: Home, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """A topic is gone when it is looked at: it was deleted, and the others go on."""
    for name in ("a", "b", "c"):
        home.topic(name, 1).append([(None, name.encode())])
    listed, opened = TopicReader._topics, Home.topic

    def and_deleted(reader: TopicReader) -> list[str]:
        found = listed(reader)
        if "b" in reader._home.topics():
            home.delete_topic("b")
        return found

    def opened_and_deleted(where: Home, name: str, *given: Any, **named: Any) -> Topic:
        topic = opened(where, name, *given, **named)
        if name == "b":
            where.delete_topic("b")
        return topic

    made = TopicReader(TopicSource(home=home.url, poll_seconds=0.01))
    position = made.begin(["a", "b", "c"])
    pieces = {name: made.pieces(name, 10) for name in ("a", "b", "c")}
    with monkeypatch.context() as patched:
        if between == "named":
            patched.setattr(TopicReader, "_topics", and_deleted)
        else:
            patched.setattr(Home, "topic", opened_and_deleted)
        assert [found.name for found in made.namespaces()] == ["a", "c"]
        assert [batch.num_rows for name in pieces for piece in pieces[name] for batch in made.copy(piece)] == [1, 1]
        home.topic("d", 1)
        following = made.follow(position, ["a", "b", "c"])
        assert list(next(following).position) == ["a", "b", "c"], "where d appeared"
        assert list(next(following).position) == ["a", "c"]
        assert list(TopicReader(TopicSource(home=home.url)).begin(["a", "b", "c"])) == ["a", "c"]


def test_an_older_copy_of_a_topic(home: Home, tmp_path: Path) -> None:
    orders = home.topic("orders", 1)
    orders.append([(None, b"1")])
    home.copy(tmp_path / "backup")
    orders.append([(None, b"2"), (None, b"3")])
    reader = TopicReader(TopicSource(home=home.url))
    position = reader.begin(["orders"])
    older = TopicReader(TopicSource(home=str(tmp_path / "backup")))
    with pytest.raises(PositionLost, match="read up to 0:3, and ends at 0:1"):
        next(older.follow(position, ["orders"]))


@pytest.mark.parametrize(
    ("namespace", "topic"),
    [
        ("public.orders", "public-orders"),
        ("public.order_items", "public-order_items"),
        ("a", "a"),
        ("public.order-items", "public-order--2Ditems"),
        ("public.order items", "public-order--20items"),
        ('x."é"', "x--2E--22--C3--A9--22"),
        ("app.log", "app--2Elog"),
        ("app.logs", "app-logs"),
        ("a..b", "a--2E-b"),
        ("a.", "a--2E"),
        ("", "-"),
    ],
)
def test_names_of_topics(namespace: str, topic: str) -> None:
    assert topic_name(namespace) == topic


@given(st.text(alphabet=".-_ aA\u00e9\x002EDH", max_size=12), st.text(alphabet=".-_ aA\u00e9\x002EDH", max_size=12))
def test_no_two_namespaces_share_a_topic(one: str, other: str) -> None:
    assert (topic_name(one) == topic_name(other)) == (one == other)
    assert check_name("topic", topic_name(one))
    assert topic_name("x" * 300 + one) != topic_name("x" * 300 + other) or one == other


@given(st.text(alphabet=".-_ a", max_size=6), st.sampled_from(["log", "dead", "actions"]))
def test_no_namespace_is_called_like_a_topic_of_a_pipeline(start: str, end: str) -> None:
    assert not topic_name(start + "." + end).endswith(f"-{end}")
    assert not topic_name(start + "-" + end).endswith(f"-{end}")


def test_a_table_with_the_columns_of_a_record_is_a_table(home: Home) -> None:
    names = ("partition", "offset", "timestamp", "attributes", "key", "value", "headers")
    columns = pa.record_batch({name: [n] for n, name in enumerate(names)})
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.finish([writer.stage([make_rows("t", columns, ["partition", "offset"])])], WHO, {"0": 1})
    (record,) = home.topic("t").records()
    assert json.loads(record.value or b"") == {name: n for n, name in enumerate(names)}


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_was_deleted_is_missed(home: Home, again: bool) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.finish([writer.stage([of("a", 1), of("b", 1)])], WHO, {"0": 1})
    assert writer.lost(WHO) == []
    home.delete_topic("b")
    if again:
        home.topic("b", 1)
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    assert writer.lost(WHO) == ["the topic 'b'"]
    writer.forget(WHO)
    assert writer.lost(WHO) == []


def of(namespace: str, *ids: int) -> pa.RecordBatch:
    return make_rows(namespace, pa.record_batch({"id": list(ids)}), ["id"])


def test_namespaces_that_differ_in_a_special_character_have_topics_of_their_own(home: Home) -> None:
    names = ["public.order-items", "public.order.items", "public.order items"]
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.finish([writer.stage([of(name, 1) for name in names])], WHO, {"0": 1})
    assert sorted(home.topics()) == sorted(map(topic_name, names))
    assert all(len(list(home.topic(topic_name(name)).records())) == 1 for name in names)


def test_a_namespace_never_writes_into_the_commit_log_of_a_pipeline(home: Home) -> None:
    log = CommitLog(home, "app", partitions=1)
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.finish([writer.stage([of("app.log", 1)])], WHO, {"0": 1})
    assert not any(end for _, end in log.topic.ends().values())
    with pytest.raises(NotReady, match="the pipeline 'app' keeps the topic 'app-log' for itself"):
        TopicWriter(TopicSink(home=home.url, topic="app-log")).check()


def test_a_pipeline_does_not_take_another_topic_for_its_commit_log(home: Home) -> None:
    home.topic("app-log", 1).append([(None, b"mine")])
    with pytest.raises(BadSetting, match="another name"):
        CommitLog(home, "app", partitions=1)


def test_what_an_earlier_version_wrote_goes_on_where_it_was(home: Home) -> None:
    old = home.topic(former_name("public.order-items"), 1)
    old.append([(b"1", b"{}")])
    for _ in range(2):
        writer = TopicWriter(TopicSink(home=home.url, partitions=1))
        writer.finish([writer.stage([of("public.order-items", 2)])], WHO, {"0": _})
    assert home.topics() == ["public-order-items"]
    assert len(list(old.records())) == 3


@pytest.mark.parametrize("names", [("public.order-items", "public.order.items"), ("public.a-b", "public.a b")])
@pytest.mark.parametrize("turned", [False, True])
def test_what_an_earlier_version_may_have_mixed_is_refused(home: Home, names: tuple[str, str], turned: bool) -> None:
    first, second = reversed(names) if turned else names
    home.topic(former_name(first), 1).append([(b"1", b"{}")])
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.stage([of(first, 1)])
    with pytest.raises(NotReady, match=r"may have mixed them.*topic delete public-"):
        writer.stage([of(second, 1)])
    home.delete_topic(former_name(first))
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.stage([of(second, 1), of(first, 1)])
    assert sorted(home.topics()) == sorted(map(topic_name, names))


def test_a_truncate_is_a_command_in_every_partition(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=3))
    writer.command("public.orders", Command("truncate"), WHO)
    found = [(r.partition, r.op, r.value) for r in home.topic("public-orders").records()]
    assert sorted(found) == [(q, Op.COMMAND, b"truncate") for q in range(3)]


def test_a_topic_that_places_keys_as_kafka_does(home: Home) -> None:
    topic = home.topic("t", partitions=3, partitioner="murmur2")
    writer = TopicWriter(TopicSink(home=home.url, topic="t", partitions=3))
    written(writer, rows(50), offsets={"0": 1})
    assert keys_in_place(topic) == 50
    writer.command("public.orders", Command("truncate"), WHO)
    assert sum(record.op == Op.COMMAND for record in topic.records()) == 3


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
    writer.command("orders", Command("truncate"), WHO)
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
        writer.command("orders", Command("truncate"), WHO)
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


def test_a_record_that_the_topic_does_not_take(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url))
    home.topic("public-t", 1, max_record_bytes=1000)
    columns = pa.record_batch({"id": pa.array([1, 2]), "v": pa.array(["v" * 500, "v" * 1000])})
    rows = make_rows("public.t", columns, ["id"])
    assert writer.stage([rows.slice(0, 1)]).rows == 1
    with pytest.raises(Rejected, match=r"over the 1,000 that the topic .* takes; `tailrace topic set") as refused:
        writer.stage([rows])
    assert refused.value.namespace == "public.t"


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
        list(zip(range(5), reader.follow(position, ["orders"]), strict=False))


# -- more topics than one transaction can change
MANY = 15


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that take few topics, so that fifteen are very many."""
    monkeypatch.setattr(manifest, "GROUP_ACTIONS", 10)


def many(ids: Sequence[int]) -> list[pa.RecordBatch]:
    return [of(f"t{n}", *ids) for n in range(MANY)]


def everywhere(home: Home) -> list[list[int]]:
    """The ids in each topic, in order."""
    return [[json.loads(r.value or b"")["id"] for r in home.topic(f"t{n}").records()] for n in range(MANY)]


def test_more_namespaces_than_a_transaction_takes(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.finish([writer.stage([of(f"t{n}", 1) for n in range(60)])], WHO, {"0": 1})
    assert [len(list(home.topic(f"t{n}").records())) for n in range(60)] == [1] * 60


@pytest.mark.usefixtures("small_groups")
def test_a_batch_of_very_many_namespaces(home: Home) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    for n in range(2):
        writer.finish([writer.stage(many([n]))], WHO, {"0": n})
        assert writer.restore(WHO.pipeline, WHO.writer) == {"epoch": 1, "offsets": {"0": n}}
    assert everywhere(home) == [[0, 1]] * MANY
    assert home.store.run(guard.read_all("$Batch-pipeline.writer")) == [], "nothing is left behind"


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("group", [0, 1, 2])
@pytest.mark.parametrize("who", [WHO, WHO._replace(epoch=2)])
def test_a_batch_of_very_many_namespaces_that_is_cut_off(
    home: Home, monkeypatch: pytest.MonkeyPatch, group: int, after: int, who: Who
) -> None:
    """Before the manifest is named (0), or between two groups; each with the transaction done or not."""
    calls = 0

    def cut(really: Any) -> Any:
        def done(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == group and not after:
                raise Killed
            found = yield from really(*given)
            if calls - 1 == group:
                raise Killed
            return found

        return done

    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    writer.claim(WHO)
    writer.finish([writer.stage(many([0]))], WHO, {"0": 0})
    with monkeypatch.context() as patched:
        patched.setattr(writing, "_noted", cut(writing._noted))
        patched.setattr(manifest, "commit_guarded", cut(manifest.commit_guarded))
        with pytest.raises(Killed):
            writer.finish([writer.stage(many([1]))], WHO, {"0": 1})
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    decided = (group, after) != (0, 0)
    if who != WHO:
        assert writer.claim(who) == {"epoch": 2, "offsets": {"0": int(decided)}}
    if not decided or who == WHO:
        writer.finish([writer.stage(many([1]))], who, {"0": 1})
    writer.finish([writer.stage(many([2]))], who, {"0": 2})
    assert everywhere(home) == [[0, 1, 2]] * MANY
    writer.claim(who._replace(epoch=9))
    assert home.store.run(guard.read_all("$Batch-pipeline.writer")) == []


def killed(*given: object) -> None:
    raise Killed


@pytest.mark.usefixtures("small_groups")
def test_an_old_run_that_tidies_late(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the sink's item; then a new run claims the sink, decides for a batch, and dies."""
    old, new = (TopicWriter(TopicSink(home=home.url, partitions=1)) for _ in range(2))
    really, who = guard.read_all, WHO._replace(epoch=2)

    def late(p: str, *given: int) -> Any:
        if p.startswith("$Batch-"):
            monkeypatch.undo()
            new.claim(who)
            with monkeypatch.context() as patched, pytest.raises(Killed):
                patched.setattr(manifest, "GROUP_ACTIONS", 10)
                patched.setattr(manifest.Manifests, "_append", killed)
                new.finish([new.stage(many([1]))], who, {"0": 1})
        return (yield from really(p, *given))

    monkeypatch.setattr(manifest.guard, "read_all", late)
    assert old.claim(WHO) == {"epoch": 2, "offsets": {"0": 1}}
    assert everywhere(home) == [[1]] * MANY, "the old run has left the manifest alone, and appended the batch"
    with pytest.raises(Fenced):
        old.finish([old.stage(many([2]))], WHO, {"0": 2})


@pytest.mark.usefixtures("small_groups")
def test_a_run_that_names_a_manifest_after_a_claim_has_tidied(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the same epoch, so that the claim itself does not write the sink's item."""
    stalled, other = (TopicWriter(TopicSink(home=home.url, partitions=1)) for _ in range(2))
    stalled.claim(WHO)
    really = manifest.Manifests.keep

    def kept(self: manifest.Manifests, some: Any) -> dict[str, int]:
        found = really(self, some)
        other.claim(WHO)
        return found

    monkeypatch.setattr(manifest.Manifests, "keep", kept)
    with pytest.raises(Fenced):
        stalled.finish([stalled.stage(many([1]))], WHO, {"0": 1})
    assert other.restore(WHO.pipeline, WHO.writer) is None, "the batch does not count as delivered"


@pytest.mark.usefixtures("small_groups")
def test_a_manifest_that_is_gone(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run says so, until an operator has set a mark from which the batch is delivered again."""
    writer, who = TopicWriter(TopicSink(home=home.url, partitions=1)), WHO._replace(epoch=2)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(manifest.Manifests, "_append", killed)
        writer.finish([writer.stage(many([1]))], WHO, {"0": 1})
    for part in home.store.run(guard.read_all("$Batch-pipeline.writer")):
        home.store.run(guard.attempt(Delete(Key(part["p"], part["i"]))))
    staged = [writer.stage(many([1]))]
    assert writer.claim(who) == {"epoch": 2, "offsets": {"0": 1}}
    for act in (lambda: writer.lost(who), lambda: writer.finish(staged, who, {"0": 1}), lambda: writer.claim(WHO)):
        with pytest.raises((NotReady, Fenced), match=r"what it needs was removed \(its manifest\)|epoch 2"):
            act()
    with pytest.raises(Fenced):
        writer.forget(WHO)
    writer.forget(who)
    writer.finish(staged, who, {"0": 1})
    assert everywhere(home) == [[1]] * MANY


@pytest.mark.usefixtures("small_groups")
def test_a_batch_that_was_decided_for_is_appended_before_an_operators_mark_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, who = TopicWriter(TopicSink(home=home.url, partitions=1)), WHO._replace(epoch=2)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(manifest.Manifests, "_append", killed)
        writer.finish([writer.stage(many([1]))], WHO, {"0": 1})
    writer.claim(who)
    writer.forget(who)
    assert everywhere(home) == [[1]] * MANY


@pytest.mark.usefixtures("small_groups")
def test_a_topic_that_is_deleted_while_a_batch_is_appended(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    staged = [writer.stage(many([1]))]
    writer.finish([], WHO, {"0": 0})
    with monkeypatch.context() as patched:
        patched.setattr(manifest.Manifests, "_append", killed)
        with pytest.raises(Killed):
            writer.finish(staged, WHO, {"0": 1})
    home.delete_topic("t7")
    writer = TopicWriter(TopicSink(home=home.url, partitions=1))
    assert writer.restore(WHO.pipeline, WHO.writer) == {"epoch": 1, "offsets": {"0": 1}}
    assert writer.lost(WHO) == ["the topic 't7'"]
    assert [json.loads(r.value or b"")["id"] for r in home.topic("t8").records()] == [1]


@pytest.mark.parametrize("shared", [None, "all"])
def test_each_record_says_where_its_change_stands(home: Home, shared: str | None) -> None:
    numbers = {"transaction": pa.array([7, 7], pa.int64()), "position": pa.array([0, 1], pa.int64())}
    made = make_rows("t", pa.record_batch({"id": [1, 1]}), ["id"], op=Op.UPDATE, mode=Mode.SYNC, **numbers)
    copied = make_rows("t", pa.record_batch({"id": [1]}), ["id"])
    writer = TopicWriter(TopicSink(home=str(home.url), topic=shared))
    writer.finish([writer.stage([placed(copied, 3, pa.array([4])), placed(made, 3, pa.array([40, 41]))])], WHO, {})
    found = [dict(record.headers) for record in home.topic(shared or "t").records()]
    also = {} if shared is None else {"namespace": b"t"}
    assert found == [
        {"partition": b"3", "offset": b"4", **also},
        {"partition": b"3", "offset": b"40", "transaction": b"7", "position": b"0", **also},
        {"partition": b"3", "offset": b"41", "transaction": b"7", "position": b"1", **also},
    ]
