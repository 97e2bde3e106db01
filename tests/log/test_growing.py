"""Topics get more partitions while others write and read; on memory, on disk and on a server."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.errors import BadSetting, Expected, UnknownPartition, UnknownTopic
from tailrace.home import Home
from tailrace.log import catalog
from tailrace.log.format import head as heads
from tailrace.log.groups import group as groups
from tailrace.log.groups import lag
from tailrace.log.integrity.scrub import scrub_topic
from tailrace.log.interchange.folder import export_topic, import_topic
from tailrace.log.record import Record, partition_of
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge_all
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.repartition import destinations, regroup
from tests.log.homes import EVERYWHERE, Worker, group_of, homes, orders, positions, run, until

KEYS = [b"key-%d" % n for n in range(40)]


home = homes(EVERYWHERE)
topic = orders(2)


def send_all(topic: Topic, value: bytes) -> None:
    topic.append([(key, value) for key in KEYS])


def at(topic: Topic, partition: int, offset: int) -> Record:
    return next(islice(topic.records(partition, offset), 1))


# -- growing
def test_records_stay_and_keys_go_on_in_the_partitions_they_have_among_the_new_number(home: Home, topic: Topic):
    send_all(topic, b"old")
    before, ends = list(topic.records()), topic.ends()
    assert topic.grow(5)
    assert (topic.partitions, home.topic("orders").partitions) == (5, 5)
    assert list(topic.records()) == before
    assert topic.ends() == {**ends, 2: (0, 0), 3: (0, 0), 4: (0, 0)}
    send_all(topic, b"new")
    for record in topic.records():
        assert record.key is not None
        assert record.partition == partition_of(record.key, 2 if record.value == b"old" else 5)
    for q, (_, end) in topic.ends().items():
        assert [record.offset for record in topic.records(q)] == list(range(end))


def test_growing_again_to_the_same_number_is_nothing_and_to_fewer_is_refused(topic: Topic):
    assert topic.grow(3)
    assert not topic.grow(3)
    with pytest.raises(BadSetting, match=r"'orders' has 3 partitions and cannot have fewer, 2"):
        topic.grow(2)
    for wrong in (0, 129, True, "4"):
        with pytest.raises(BadSetting, match="1 to 128 partitions"):
            topic.grow(wrong)  # type: ignore[arg-type]


def test_a_topic_grows_so_many_times_and_no_more(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalog, "MAX_GROWTHS", 3)
    for partitions in (3, 4, 128):
        assert topic.grow(partitions)
        topic.append([(b"k", b"v")])
    monkeypatch.setattr(catalog, "MAX_PARTITIONS", 200)
    with pytest.raises(BadSetting, match="has grown 3 times"):
        topic.grow(129)


def test_a_deleted_topic_does_not_grow(home: Home, topic: Topic):
    other = home.topic("orders")
    home.delete_topic("orders")
    home.create_topic("orders", 1)
    with pytest.raises(UnknownTopic):
        other.grow(4)
    assert home.topic("orders").partitions == 1


# -- producers that do not know yet
@pytest.fixture
def stranger(home: Home, topic: Topic) -> Topic:
    """The same topic as a process has it that opened it before it grew, and has seen its head."""
    other = home.topic("orders")
    other.ends()
    topic.grow(5)
    assert other.partitions == 2
    return other


def check(topic: Topic, key: bytes, value: bytes, partition: int, offset: int) -> None:
    found = at(topic, partition, offset)
    assert (found.key, found.value, partition) == (key, value, partition_of(key, 5))


def test_acknowledgements_say_where_records_really_went(topic: Topic, stranger: Topic):
    with stranger.producer() as out:
        acks = {key: out.send(key, b"one") for key in KEYS}
        pinned = out.send(KEYS[0], b"here", partition=1)
        loose = out.send(None, b"anywhere")
    for key, ack in acks.items():
        check(topic, key, b"one", ack.partition, ack.result())
    assert pinned.partition == 1
    assert at(topic, 1, pinned.result()).value == b"here"
    assert at(topic, loose.partition, loose.result()).value == b"anywhere"
    assert stranger.partitions == 5
    stranger.append([(b"k", b"v")])
    assert len(list(topic.records())) == len(KEYS) + 3


def test_batches_come_back_as_the_spans_they_really_are(topic: Topic, stranger: Topic):
    table = pa.table({"key": KEYS, "value": [b"%d" % n for n in range(len(KEYS))]})
    with stranger.producer() as out:
        spans = out.send_batch(table).result()
    found = {r.value for s in spans for r in islice(topic.records(s.partition, s.offset), s.records)}
    assert found == set(table["value"].to_pylist())
    assert sum(s.records for s in spans) == len(KEYS)
    assert {s.partition for s in spans} == set(range(5))


def test_transactions_of_several_topics(home: Home, topic: Topic, stranger: Topic):
    second = home.topic("second", partitions=3)
    with home.transaction(stranger, second) as t:
        acks = {key: t.send(key, b"x", topic="orders") for key in KEYS}
        t.send(b"k", b"y", topic="second")
    for key, ack in acks.items():
        check(topic, key, b"x", ack.partition, ack.result())
    assert len(list(second.records())) == 1


def test_asyncio_producers(topic: Topic, stranger: Topic):
    async def main() -> None:
        async with stranger.aio.producer() as out:
            acks = {key: await out.send(key, b"x") for key in KEYS}
            for key, ack in acks.items():
                offset = await ack
                check(topic, key, b"x", ack.partition, offset)

    run(main)


def test_a_conditional_append_whose_keys_have_moved_is_refused_as_any_other_that_came_too_late(
    topic: Topic, stranger: Topic
):
    key = next(key for key in KEYS if partition_of(key, 2) != partition_of(key, 5))
    with pytest.raises(Expected, match="has grown to 5 partitions"):
        stranger.append([(key, b"x")], expected={partition_of(key, 2): 0})
    assert not list(topic.records())
    stays = next(key for key in KEYS if partition_of(key, 2) == partition_of(key, 5))
    (span,) = stranger.append([(stays, b"x")], expected={partition_of(stays, 5): 0})
    assert (span.partition, span.offset) == (partition_of(stays, 5), 0)
    other = home_of(stranger).topic("orders")
    other.append([(key, b"x")], expected={partition_of(key, 5): other.ends()[partition_of(key, 5)][1]})


def home_of(topic: Topic) -> Home:
    return Home("memory:", topic.store)


def test_a_numbered_batch_is_answered_alike_before_and_after(home: Home, topic: Topic):
    pairs = [(key, b"x") for key in KEYS]
    with_two = topic.named_producer("n").send_batch(pairs, number=1)
    topic.grow(5)
    later = home.topic("orders").named_producer("n")
    assert later.send_batch(pairs, number=1) is not None
    assert sorted(_rows(later.send_batch(pairs, number=1) or [])) == sorted(_rows(with_two or []))
    spans = later.send_batch(pairs, number=2)
    assert {s.partition for s in spans or []} == set(range(5))
    assert len(list(topic.records())) == 2 * len(KEYS)


def _rows(spans: list) -> list[tuple[int, int]]:
    return [(s.partition, s.offset + n) for s in spans for n in range(s.records)]


# -- readers
def test_who_follows_all_partitions_reads_the_new_ones_too(topic: Topic):
    send_all(topic, b"old")
    with topic.follow(start="earliest") as records:
        first = list(islice(records, len(KEYS)))
        topic.grow(5)
        send_all(topic, b"new")
        second = list(islice(records, len(KEYS)))
    assert [{r.value for r in some} for some in (first, second)] == [{b"old"}, {b"new"}]
    assert {r.partition for r in second} == set(range(5))


def test_on_append_tells_of_the_new_partitions(topic: Topic):
    told: list[dict[int, int]] = []
    with topic.on_append(lambda ends: told.append(dict(ends))):
        topic.grow(3)
        until(lambda: bool(told))
        assert told[-1] == {0: 0, 1: 0, 2: 0}


def test_offsets_by_time_and_lag_know_the_new_partitions(home: Home, topic: Topic):
    with topic.transaction() as t:
        t.send(None, b"x", partition=1, timestamp=1000)
    topic.grow(4)
    with topic.transaction() as t:
        t.send(None, b"y", partition=3, timestamp=2000)
    when = datetime.fromtimestamp(1.5, UTC)
    assert [topic.offset_at(q, when) for q in range(4)] == [0, 1, 0, 0]
    assert groupstate_lag(topic) == {0: 0, 1: 1, 2: 0, 3: 1}
    with pytest.raises(UnknownPartition, match="0 to 3"):
        topic.offset_at(4, when)


def groupstate_lag(topic: Topic) -> dict[int, int]:
    behind = topic.store.run(lag.lag(topic.log, dict.fromkeys(range(4), 0), 10.0))
    return {q: one.records for q, one in behind.partitions.items()}


def test_export_and_import(home: Home, topic: Topic, tmp_path: Path):
    send_all(topic, b"old")
    topic.grow(5)
    send_all(topic, b"new")
    export_topic(topic, tmp_path / "out")
    again = home.topic("again", partitions=2)
    with pytest.raises(UnknownPartition):
        import_topic(again, tmp_path / "out")
    again.grow(5)
    import_topic(again, tmp_path / "out")
    strip = lambda topic: [(r.partition, r.offset, r.key, r.value) for r in topic.records()]  # noqa: E731
    assert sorted(strip(again)) == sorted(strip(topic))


# -- groups
def test_a_group_reads_on_across_it_in_the_order_of_each_key(home: Home, topic: Topic):
    handled: list[Record] = []
    lock = threading.Lock()

    def handle(record: Record) -> None:
        with lock:
            handled.append(record)

    workers = [Worker(home.topic("orders"), handle) for _ in range(2)]
    number = 0
    for partitions in (2, 3, 7):
        topic.grow(partitions)
        for _ in range(5):
            topic.append([(key, b"%d" % number) for key in KEYS])
            number += 1
    until(lambda: len(handled) == number * len(KEYS), 60)
    until(lambda: positions(topic) == {q: end for q, (_, end) in topic.ends().items()}, 60)
    for worker in workers:
        worker.stop()
    for key in KEYS:
        assert [r.value for r in handled if r.key == key] == [b"%d" % n for n in range(number)]
    state = topic.store.run(lag.describe(group_of(topic), 0.0))
    assert [p.partition for p in state.partitions] == list(range(7))
    assert state.lag.records == 0


def test_nobody_reads_beyond_before_all_is_committed(topic: Topic):
    send_all(topic, b"old")
    topic.grow(5)
    send_all(topic, b"new")
    with topic.consumer("billing", auto_commit=False, ttl=0.3) as consumer:
        records = iter(consumer)
        first = list(islice(records, len(KEYS)))
        assert {record.value for record in first} == {b"old"}
        assert not consumer.caught_up
        consumer.commit()
        second = list(islice(records, len(KEYS)))
        assert {record.value for record in second} == {b"new"}
        until(lambda: consumer.caught_up)


def test_a_group_is_past_once_the_last_record_before_is_committed_and_not_one_earlier(topic: Topic):
    send_all(topic, b"old")
    before = {q: end for q, (_, end) in topic.ends().items()}
    topic.grow(3)
    send_all(topic, b"new")
    between = {q: end for q, (_, end) in topic.ends().items()}
    topic.grow(4)
    head = topic.store.run(topic.log.head())
    assert [groups.passed(head, at) for at in ({}, before, between)] == [0, 1, 2]
    for q in before:
        assert groups.passed(head, {**before, q: before[q] - 1}) == 0
    for q in between:
        assert groups.passed(head, {**between, q: between[q] - 1}) == 1


def test_a_group_made_later_begins_where_it_is_told(topic: Topic):
    send_all(topic, b"old")
    topic.grow(5)
    send_all(topic, b"new")
    with topic.consumer("billing", start="latest", ttl=0.3) as consumer:
        until(lambda: consumer.caught_up)
        topic.append([(key, b"newest") for key in KEYS])
        assert {r.value for r in islice(iter(consumer), len(KEYS))} == {b"newest"}


def test_a_group_without_members_is_behind_in_the_new_partitions_too(topic: Topic):
    topic.store.run(groups.make(group_of(topic), "latest"))
    topic.grow(5)
    send_all(topic, b"new")
    state = topic.store.run(lag.describe(group_of(topic), 0.0))
    assert state.lag.records == len(KEYS)
    assert topic.store.run(groups.reset(group_of(topic), "latest", ttl=0.1)) == {
        q: end for q, (_, end) in topic.ends().items()
    }


# -- regrouping
def test_records_are_regrouped_in_order_and_what_was_sent_to_a_partition_stays():
    buffer = Buffer(2, 1000)
    for n in range(200):
        buffer.add(KEYS[n % 40], b"%d" % n, 1000, {"h": b"x"} if n % 3 == 0 else None)
        if n % 10 == 0:
            buffer.add(KEYS[n % 40], b"p%d" % n, 1000, partition=n // 10 % 2)
            buffer.add(None, b"n%d" % n, 1000)
    old = buffer.encode("lz4")
    new = regroup(old, 7)
    assert (new.partitions, new.compression) == (7, "lz4")
    before = [(q, row) for q, some in old.batches().items() for row in pa.Table.from_batches(some).to_pylist()]
    after = {q: pa.Table.from_batches(some).to_pylist() for q, some in new.batches().items()}
    to = destinations(old.batches(), old.pinned, 7)
    places = [place for q in sorted(to) for place in to[q]]
    for (q, row), (new_q, rank) in zip(before, places, strict=True):
        assert after[new_q][rank] == row
        stays = row["key"] is None or row["value"].startswith(b"p")
        assert new_q == (q if stays else partition_of(row["key"], 7))
    assert sum(map(len, after.values())) == len(before)
    again = regroup(new, 9)
    assert sum(run.count for run in again.runs) == len(before)
    kept = [row for q, some in again.batches().items() for row in pa.Table.from_batches(some).to_pylist() if q < 2]
    assert sum(row["value"].startswith(b"p") for row in kept) == 20


def test_what_need_not_move_is_as_it_was():
    buffer = Buffer(2, 1000)
    buffer.add(None, b"x", 1000)
    chunk = buffer.encode("none")
    assert regroup(chunk, 5).parts is chunk.parts


# -- upkeep
def test_upkeep_and_scrub_see_one_topic(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heads, "MAX_ENTRY_BYTES", 200)
    for partitions in (2, 2, 4, 4, 7):
        topic.grow(partitions)
        for n in range(4):
            topic.append([(key, b"%d.%d" % (partitions, n)) for key in KEYS])
    before, store, log = list(topic.records()), topic.store, topic.log
    assert not store.run(scrub_topic(log)).damages
    assert store.run(merge_all(log)) > 3
    assert not store.run(scrub_topic(log)).damages
    by_place = lambda records: sorted((r.partition, r.offset, r.value) for r in records)  # noqa: E731
    assert by_place(topic.records()) == by_place(before)
    store.run(clean(log))
    store.run(clean(log))
    assert by_place(topic.records()) == by_place(before)
    store.run(raise_floor(log, {q: end for q, (_, end) in topic.ends().items()}))
    store.run(drop_pages(log))
    topic.append([(key, b"last") for key in KEYS])
    assert [r.value for r in topic.records()] == [b"last"] * len(KEYS)
    assert not store.run(scrub_topic(log)).damages
