"""Scrubbing a whole home: topics of real files, groups, producers, streams, and what nothing refers to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tailrace
from tailrace.adaptors.contract import Piece
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import Lost, UnknownTopic
from tailrace.events.event import Event
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.groups import group as groups
from tailrace.log.integrity import scrub as scrubbing
from tailrace.log.integrity.damage import Damage
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import gather
from tailrace.log.write.staged_chunk import stage_chunks
from tailrace.pipeline.deliver import offsets
from tailrace.pipeline.deliver.offsets import Mark, offsets_key
from tailrace.pipeline.ingest.commit_log import CommitLog
from tailrace.storage.tables import LAST, Absent, Delete, Key, Put, Set, Update
from tests.log.homes import EVERYWHERE, fill, group_of, opened, until

BIG = b"x" * 70_000


@pytest.fixture(params=EVERYWHERE)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with opened(request, tmp_path) as home:
        yield home


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


def the_damage(home: Home) -> Damage:
    (damage,) = home.scrub().damages
    return damage


def some_of_all(home: Home) -> None:
    """Topics of small and large chunks, in pages and not, a group, a named producer, streams with calves."""
    one, two = home.create_topic("one", 2), home.create_topic("two", 3)
    for n in range(4):
        fill(one, 10, 10 * n)
        two.append([(b"%d" % n, BIG), (b"other", b"small")])
        if n == 2:
            home.store.run(roll(one.log, home.store.run(one.log.head())))
            home.store.run(roll(two.log, home.store.run(two.log.head())))
    one.named_producer("loader").send_batch([(b"k", b"v")])
    home.store.run(groups.make(group_of(one), "earliest"))
    events = home.events(max_events=3)
    for n in range(10):
        events.stream("Cart-1").append([Event("Added", b"%d" % n)], expected=n)
    events.stream("Cart-2").append([Event("Added", b"")], expected=0)


def test_a_whole_home(home: Home) -> None:
    some_of_all(home)
    report = home.scrub()
    assert report.damages == []
    assert (report.topics, report.groups, report.producers, report.streams) == (2, 1, 1, 2)
    assert report.found.records == 40 + 1 + 8
    assert (report.orphans, report.pending) == (0, 0)
    assert report.clean


def test_an_empty_home(home: Home) -> None:
    assert home.scrub().clean


def test_only_some_topics(home: Home) -> None:
    some_of_all(home)
    report = home.scrub(["one"])
    assert (report.topics, report.groups, report.streams, report.found.records) == (1, 1, 0, 41)
    with pytest.raises(UnknownTopic, match="did you mean 'one'"):
        home.scrub(["on"])


# --- orphans
def test_orphans_are_told_from_what_is_not_committed_yet(home: Home) -> None:
    topic = home.create_topic("t")
    topic.append([(b"k", BIG)])
    for gen in 0, 1:
        home.store.objects.put(heads.object_name(topic.id, gen, f"{gen + 1:024x}"), [b"left behind"])
        entry = heads.ChunkEntry(f"{gen + 77:024x}", True, gen, 0, ())
        home.store.table.write(heads.chunk_item(topic.id, entry, b"too"))
    report = home.scrub()
    assert (report.orphans, report.pending, report.clean) == (0, 4, True)
    home.store.table.write(Update(heads.head_key(topic.id), (Set("gen", 1), Set("gc", 1))))
    report = home.scrub()
    assert (report.orphans, report.orphan_bytes, report.pending, report.clean) == (2, 14, 2, True)


def test_files_that_are_nobodys_are_noted_and_left(disk: Home, tmp_path: Path) -> None:
    topic = disk.create_topic("t")
    topic.append([(b"k", BIG)])
    folder = tmp_path / "home" / "objects" / "topics" / topic.id
    for path in (folder / "0" / ".DS_Store", folder / "README", folder.parent / "notes"):
        path.write_bytes(b"somebody's")
    late = disk.create_topic("late")
    disk.delete_topic("late")
    disk.store.objects.put(heads.object_name(late.id, 0, "ab" * 12), [b"put after it was deleted"])
    for _ in range(3):
        assert disk.upkeep()[0].error is None
    report = disk.scrub()
    assert report.clean
    assert "3 objects are not of tailrace's making, such as topics/" in report.notes[0]
    assert f"the object topics/{late.id}/0/{'ab' * 12} is of topics that are gone" in report.notes[1]
    assert disk.scrub(["t"]).notes == []


def test_a_topic_named_twice_is_scrubbed_and_kept_up_once(home: Home) -> None:
    fill(home.create_topic("t"), 3)
    report = home.scrub(["t", "t"])
    assert (report.topics, report.found.records) == (1, 3)
    assert len(home.upkeep("t", "t")) == 1


# --- what refers to topics
def test_a_group_beyond_the_end(home: Home) -> None:
    topic = home.create_topic("t", 2)
    fill(topic, 10)
    group = group_of(topic)
    home.store.run(groups.make(group, "earliest"))
    home.store.table.write(Update(group.shard(1), (Set("position", 6),)))
    damage = the_damage(home)
    assert (damage.kind, damage.topic, damage.where) == ("position", "t", f"item {group.hash_key}/1")
    assert damage.text == "group 'billing' is at 6 of partition 1, which ends at 5"


def test_a_group_that_was_told_to_wait_beyond_the_end(home: Home) -> None:
    topic = home.create_topic("t")
    home.store.run(groups.make(group_of(topic), 100))
    report = home.scrub()
    assert report.clean
    assert "waits for that" in report.notes[0]


def test_a_lease_of_somebody_who_is_gone_and_a_position_without_its_partition(home: Home) -> None:
    topic = home.create_topic("t", 2)
    fill(topic, 10)
    group = group_of(topic)
    home.store.run(groups.make(group, "earliest"))
    home.store.table.write(Update(group.shard(0), (Set("owner", 4711),)))
    report = home.scrub()
    assert report.clean, "whoever comes next takes it over"
    assert "partition 0 of 't' is leased to a member of group 'billing' that is gone" in report.notes[0]
    shard = dict(home.store.table.get(group.shard(1)) or {})
    home.store.table.write(Put(group.shard(7), {**shard, "i": 7, "position": 3}, (Absent(),)))
    damage = the_damage(home)
    assert (damage.kind, damage.where) == ("position", f"item {group.hash_key}/7")


def test_a_producer_whose_batch_is_not_in_the_log(home: Home) -> None:
    topic = home.create_topic("t")
    topic.named_producer("loader").send_batch([(b"k", b"v")])
    key = Key(f"$Producer-{topic.id}_loader")
    home.store.table.write(Update(key, (Set("id", "f" * 24),)))
    damage = the_damage(home)
    assert (damage.kind, damage.topic, damage.where) == ("producer", "t", f"item {key.p}/0")


# --- pipelines
def copied(home: Home) -> tuple[CommitLog, str]:
    """A pipeline's commit log with a piece of a copy, a change, a writer that has acknowledged both, and a sink."""
    log = CommitLog(home, "shop", partitions=1)
    log.begin(None)
    log.plan("shop.a", [Piece("shop.a", [0, 9], 2)])
    log.commit_piece(0, [stage_chunks(home.store, log.topic.log, log.topic.described, [_row(0), _row(1)])])
    assert log.take_in([_row(2)], 7)
    log.hold([offsets_key("shop", "w", 0)])
    epoch, _ = home.store.run(offsets.take("shop", "w", 1))
    home.store.run(offsets.save("shop", "w", epoch, {0: Mark(1, {"shop.a": 2})}))
    chunk = home.store.run(log.topic.log.head()).own.entries[-1].id
    sink = {"seq": 1, "epoch": 1, "offsets": "{}", "claimed": False, "id": chunk, "page": 0}
    home.store.table.write(Put(Key("$Sink-shop.w"), sink, (Absent(),)))
    return log, chunk


def _row(id: int) -> pa.RecordBatch:
    return make_rows("shop.a", pa.RecordBatch.from_pydict({"id": [id]}), ["id"])


def test_a_pipeline(home: Home) -> None:
    log, _ = copied(home)
    report = home.scrub()
    assert (report.damages, report.notes) == ([], [])
    assert log.take_in([], 8), "a position alone has no chunk"
    assert home.scrub().clean
    home.delete_topic("shop-log")
    report = home.scrub()
    assert report.damages == []
    assert "$Sink" not in str(report.notes), "there is no topic left in which it could be"


@pytest.mark.parametrize("p", ["$Reader-shop", "$Pieces-shop", "$Sink-shop.w"])
def test_a_pipeline_whose_last_batch_is_not_in_the_log(home: Home, p: str) -> None:
    copied(home)
    home.store.table.write(Update(Key(p), (Set("id", "f" * 24),)))
    if p.startswith("$Sink-"):
        report = home.scrub()
        assert report.clean
        assert f"item {p}/0: its last batch is stored by its own account, and is not in" in report.notes[0]
    else:
        damage = the_damage(home)
        assert (damage.kind, damage.topic, damage.where) == ("producer", "shop-log", f"item {p}/0")


@pytest.mark.parametrize("change", [Set("low", 3), Set(("ahead", "shop.a"), 3)])
def test_a_writer_that_has_acknowledged_what_was_never_there(home: Home, change: Set) -> None:
    copied(home)
    key = Key("$Offsets-shop.w")
    home.store.table.write(Update(key, (change,)))
    damage = the_damage(home)
    assert (damage.kind, damage.topic, damage.where) == ("position", "shop-log", f"item {key.p}/0")
    assert "up to 3 of partition 0 is acknowledged, which ends at 3" in damage.text
    assert home.scrub(["shop-log"]).damages == [damage]
    home.store.table.write(Update(key, (Set("word", 1),)))
    report = home.scrub()
    assert report.clean
    assert "as an operator has said" in report.notes[0]


def test_a_head_that_is_gone(home: Home) -> None:
    topic = home.create_topic("t")
    home.store.table.write(Delete(heads.head_key(topic.id)))
    assert the_damage(home).kind == "head"


def test_a_description_that_is_gone(home: Home) -> None:
    home.create_topic("t")
    home.store.table.write(Delete(Key("$Topic-t", LAST)))
    assert the_damage(home).kind == "catalog"


# --- streams
def calved(home: Home) -> None:
    events = home.events(max_events=2)
    for n in range(7):
        events.stream("Cart-1").append([Event("Added", b"%d" % n)], expected=n)
    events.stream("Dog-1").append([Event("Barked", b"")], expected=0)


def test_a_calf_that_is_gone(home: Home) -> None:
    calved(home)
    home.store.table.write(Delete(Key("Cart-1", 2)))
    damage = the_damage(home)
    assert (damage.kind, damage.where, damage.byte) == ("event", "Cart-1", 2)


def test_an_event_that_was_changed(home: Home) -> None:
    calved(home)
    home.store.table.write(Update(Key("Cart-1", 2), (Set("c", ["Added", "Removed"]),)))
    assert the_damage(home).kind == "event"


def test_a_tip_that_is_gone(home: Home) -> None:
    calved(home)
    home.store.table.write(Delete(Key("Cart-1", 2**31 - 1)))
    damage = the_damage(home)
    assert (damage.kind, damage.where) == ("event", "Cart-1")


# --- samples, and beside others
def test_a_sample_reads_some_and_knows_that_the_rest_is_there(disk: Home) -> None:
    topic = disk.create_topic("t")
    for _ in range(60):
        topic.append([(b"k", BIG)])
    report = disk.scrub(sample=0.3)
    assert report.clean
    assert 0 < report.found.chunks < 60
    assert report.found.chunks + report.unread == 60
    entry = disk.store.run(topic.log.head()).own.entries[7]
    disk.store.objects.delete([heads.object_name(topic.id, 0, entry.id)])
    for _ in range(5):
        (damage,) = disk.scrub(sample=0.01).damages
        assert (damage.kind, damage.lost) == ("missing", (Lost(0, 7, 8),))


def test_a_sample_leaves_out_nothing_of_the_table(home: Home) -> None:
    topic = home.create_topic("t")
    for n in range(20):
        fill(topic, 1, n)
    entries = home.store.run(topic.log.head()).own.entries
    assert all(entry.inline for entry in entries)
    home.store.table.write(heads.drop_chunk(topic.id, entries[7]))
    (damage,) = home.scrub(sample=0.001).damages
    assert (damage.kind, damage.lost) == ("missing", (Lost(0, 7, 8),))


def test_a_sample_knows_that_chunks_on_a_list_are_there(disk: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a very large Spark commit."""
    monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 0)
    topic = disk.create_topic("t")
    topic.log.inline_bytes = 0
    parts = []
    for _ in range(3):
        buffer = Buffer(1, 1 << 20)
        buffer.add(b"k", b"v", 1)
        parts.append(buffer.encode("none"))
    disk.store.run(commit([disk.store.run(gather(topic.log, parts))]))
    assert disk.scrub(sample=0.001).unread == 1
    (listed,) = disk.store.run(topic.log.head()).own.entries
    (_, one, _) = disk.store.run(manifest.expand(topic.log.id, listed))
    disk.store.objects.delete([heads.object_name(topic.id, one.gen, one.id)])
    (damage,) = disk.scrub(sample=0.001).damages
    assert (damage.kind, damage.lost) == ("missing", (Lost(0, 1, 2),))


def test_beside_producers_merging_and_cleaning(disk: Home) -> None:
    topic = disk.create_topic("t", 2)
    stop, reports = threading.Event(), []

    def produce() -> None:
        while not stop.is_set():
            topic.append([(b"%d" % n, b"x" * 40_000) for n in range(4)])

    def keep(own: Topic) -> None:
        while not stop.is_set():
            head = disk.store.run(own.log.head())
            items = disk.store.table.query(heads.head_key(topic.id).p, head.first, LAST - 1, limit=3).items
            if len(items) == 3:
                disk.store.run(merge(own.log, [heads.Page.of(item) for item in items][1:]))
            disk.store.run(clean(own.log))

    before, heads.MAX_ENTRY_BYTES = heads.MAX_ENTRY_BYTES, 400
    threads = [threading.Thread(target=produce), threading.Thread(target=keep, args=(disk.topic("t"),))]
    try:
        for thread in threads:
            thread.start()
        until(lambda: topic.ends()[0][1] > 50)
        reports += [disk.scrub() for _ in range(8)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        heads.MAX_ENTRY_BYTES = before
    assert [str(d) for report in reports for d in report.damages] == []
    assert disk.scrub().found.records >= sum(end for _, end in topic.ends().values())


def test_a_topic_that_has_grown(home: Home) -> None:
    topic = home.create_topic("t", 2)
    fill(topic, 10)
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    fill(topic, 4, 10)
    topic.grow(5)
    topic = home.topic("t")
    fill(topic, 25, 100)
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    fill(topic, 5, 200)
    report = home.scrub()
    assert report.damages == []
    assert report.found.records == 44
    home.store.table.write(Delete(heads.page_key(topic.id, 1)))
    (damage,) = home.scrub().damages
    assert damage.lost == (Lost(0, 5, 7), Lost(1, 5, 7))


def test_after_upkeep_and_compaction(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = home.create_topic("t", 2, compact=True)
    before, heads.MAX_ENTRY_BYTES = heads.MAX_ENTRY_BYTES, 300
    try:
        for n in range(30):
            topic.append([(b"%d" % (n % 3), BIG if n % 4 == 0 else b"small")])
    finally:
        heads.MAX_ENTRY_BYTES = before
    for _ in range(3):
        home.upkeep("t")
    report = home.scrub()
    assert report.damages == []
    assert report.found.chunks < 30
    assert report.found.records == len(list(topic.records())) < 30
    assert not report.found.at_most
    monkeypatch.setattr(scrubbing, "MAX_BYTES_PER_READ", 100)
    report = home.scrub()
    assert (report.clean, report.found.records, report.found.at_most) == (True, 30, True)
