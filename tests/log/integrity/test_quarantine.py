"""Quarantine: readers pass exactly the offsets that somebody has decided to do without, and say so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import Damaged, Lost, ObjectMissing
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format import manifest
from tailrace.log.read.gaps import skim
from tailrace.log.read.reader import Reader
from tailrace.log.topic import Topic
from tailrace.log.upkeep.merge import merge_all
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.append import commit
from tailrace.log.write.attempt import roll
from tailrace.log.write.buffer import Buffer
from tailrace.log.write.joint_append import gather
from tailrace.storage.tables import Delete
from tests.log.homes import fill


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with tailrace.open(tmp_path / "home") as home:
        yield home


@pytest.fixture
def topic(home: Home) -> Topic:
    """Four pages of an object with five records of each of two partitions."""
    topic = home.create_topic("t", 2)
    topic.log.inline_bytes = 0
    for n in range(4):
        fill(topic, 10, 10 * n)
        home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    return topic


def page(topic: Topic, number: int) -> heads.Page:
    (item,) = topic.store.table.query(heads.head_key(topic.id).p, number, number).items
    return heads.Page.of(item)


def path_of(topic: Topic, tmp_path: Path, number: int) -> Path:
    entry = page(topic, number).entries[0]
    return tmp_path / "home" / "objects" / heads.object_name(topic.id, entry.gen, entry.id)


def harm(topic: Topic, tmp_path: Path, how: str, number: int = 1) -> tuple[Lost, ...]:
    """Damage a page or its object; gives what is lost."""
    path = path_of(topic, tmp_path, number)
    if how == "gone":
        path.unlink()
    elif how == "page":
        topic.store.table.write(Delete(heads.page_key(topic.id, number)))
    else:
        run = page(topic, number).entries[0].runs[1]
        data = bytearray(path.read_bytes())
        data[run.position] ^= 1
        path.write_bytes(data)
        return (Lost(1, 5, 10),)
    return (Lost(0, 5, 10), Lost(1, 5, 10))


def offsets(topic: Topic) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    for record in topic.records():
        found[record.partition].append(record.offset)
        assert int(record.value) == record.offset * 2 + record.partition
    return found


@pytest.mark.parametrize("how", ["flip", "gone", "page"])
def test_readers_pass_what_is_quarantined_and_nothing_else(
    home: Home, topic: Topic, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = harm(topic, tmp_path, how)
    with pytest.raises(Damaged) as caught:
        offsets(topic)
    assert caught.value.lost == lost
    (damage,) = home.scrub().damages
    assert damage.lost == lost
    assert topic.quarantine(damage.lost, "the disk of May", who="ann") == len(lost)
    assert topic.quarantine(damage.lost, "again", who="bob") == 0
    with caplog.at_level(logging.WARNING, "tailrace"):
        assert offsets(topic) == {
            q: [n for n in range(20) if not any(p == q and a <= n < b for p, a, b in lost)] for q in range(2)
        }
    assert "quarantined by ann: the disk of May" in caplog.text
    kept = topic.quarantined()
    assert [(p.lost, p.who, p.why) for p in kept] == [(one, "ann", "the disk of May") for one in lost]
    assert not home.scrub().clean, "it is still damaged"
    reader = Reader(topic.log, {0: 0, 1: 7})
    while home.store.run(reader.poll()):
        pass
    assert reader.positions == {0: 20, 1: 20}
    assert reader.skipped == [Lost(q, 7 if q else first, end) for q, first, end in lost]


def test_more_than_was_decided_is_not_passed(home: Home, topic: Topic, tmp_path: Path) -> None:
    topic.quarantine(harm(topic, tmp_path, "flip"), "known")
    harm(topic, tmp_path, "flip", 2)
    with pytest.raises(Damaged) as caught:
        offsets(topic)
    assert caught.value.lost == (Lost(1, 10, 15),)


def test_a_part_of_what_is_lost_is_not_enough(topic: Topic, tmp_path: Path) -> None:
    harm(topic, tmp_path, "flip")
    topic.quarantine([Lost(1, 5, 9)], "not all of it")
    with pytest.raises(Damaged):
        offsets(topic)


def test_what_can_be_read_is_read_though_quarantined(topic: Topic, tmp_path: Path) -> None:
    topic.quarantine([Lost(0, 0, 20)], "by mistake")
    assert offsets(topic) == {0: list(range(20)), 1: list(range(20))}


@pytest.mark.parametrize("how", ["flip", "gone", "page"])
def test_a_decision_wider_than_the_loss_passes_the_loss_alone(topic: Topic, tmp_path: Path, how: str) -> None:
    lost = harm(topic, tmp_path, how)
    topic.quarantine([Lost(0, 0, 20), Lost(1, 0, 20)], "all of it, to be sure")
    gone = {(q, n) for q, first, end in lost for n in range(first, end)}
    assert offsets(topic) == {q: [n for n in range(20) if (q, n) not in gone] for q in range(2)}


def test_lifting_brings_the_error_back_or_the_records(topic: Topic, tmp_path: Path) -> None:
    whole = path_of(topic, tmp_path, 1).read_bytes()
    topic.quarantine(harm(topic, tmp_path, "gone"), "lost")
    assert len(offsets(topic)[0]) == 15
    assert [p.partition for p in topic.lift(1)] == [1]
    with pytest.raises(Damaged):
        offsets(topic)
    topic.lift()
    assert topic.quarantined() == []
    path_of(topic, tmp_path, 1).write_bytes(whole)
    assert len(offsets(topic)[0]) == 20


def test_a_consumer_passes_it(home: Home, topic: Topic, tmp_path: Path) -> None:
    topic.quarantine(harm(topic, tmp_path, "flip"), "lost")
    with topic.consumer("g", start="earliest", ttl=1) as consumer:
        found = []
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) == 35:
                break
    assert sorted(found) == sorted((q, n) for q in range(2) for n in range(20) if not (q == 1 and 5 <= n < 10))


def test_merging_leaves_damage_as_it_is_and_retention_removes_it(home: Home, topic: Topic, tmp_path: Path) -> None:
    lost = harm(topic, tmp_path, "flip")
    topic.quarantine(lost, "lost")
    before = offsets(topic)
    home.store.run(merge_all(topic.log))
    assert offsets(topic) == before
    assert home.scrub().damages[0].lost == lost
    home.store.run(raise_floor(topic.log, {0: 10, 1: 10}))
    assert home.store.run(drop_pages(topic.log)) >= 1
    assert home.scrub().clean


def test_a_copy_has_it_too(home: Home, topic: Topic, tmp_path: Path) -> None:
    topic.quarantine(harm(topic, tmp_path, "gone"), "lost", who="ann")
    done = home.copy(tmp_path / "copy")
    assert [d.lost for d in done.report.damages] == [(Lost(0, 5, 10), Lost(1, 5, 10))]
    with tailrace.open(tmp_path / "copy") as copied:
        assert offsets(copied.topic("t")) == offsets(topic)


@pytest.mark.parametrize("how", ["flip", "gone"])
def test_a_search_by_time_passes_it_too(home: Home, tmp_path: Path, how: str) -> None:
    topic = home.create_topic("t", 2)
    topic.log.inline_bytes = 0
    for n in range(4):
        with topic.transaction() as t:
            for place in range(10):
                t.send(None, b"x", partition=place % 2, timestamp=1000 * n + place)
        home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    assert topic.offset_at(1, at(1000)) == 5
    lost = harm(topic, tmp_path, how)
    with pytest.raises(Damaged):
        topic.offset_at(1, at(1000))
    topic.quarantine(lost, "tried everything")
    assert topic.offset_at(1, at(1000)) == 10, "the first that can be read"
    assert topic.offset_at(1, at(0)) == 0
    topic.lift()
    with pytest.raises(Damaged):
        topic.offset_at(1, at(1000))


@pytest.mark.parametrize("how", ["flip", "gone"])
def test_a_list_of_chunks_is_passed_by_searches_too(
    home: Home, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a very large Spark commit."""
    monkeypatch.setattr(manifest, "MAX_ENTRY_BYTES_WITHOUT_MANIFEST", 0)
    topic = home.create_topic("t")
    topic.log.inline_bytes = 0
    for n in range(3):
        parts = []
        for _ in range(2):
            buffer = Buffer(1, 1 << 20)
            buffer.add(b"k", b"v", 1000 * n)
            parts.append(buffer.encode("none"))
        home.store.run(commit([home.store.run(gather(topic.log, parts))]))
        home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    path = path_of(topic, tmp_path, 1)
    path.unlink() if how == "gone" else path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(Damaged):
        topic.offset_at(0, at(1000))
    with pytest.raises((Damaged, ObjectMissing)):
        home.store.run(skim(topic.log, {0: 0}, {0: 6}, 1 << 20))
    (damage,) = home.scrub().damages
    topic.quarantine(damage.lost, "tried everything")
    assert topic.offset_at(0, at(1000)) == 4, "the first that can be read"
    assert home.store.run(skim(topic.log, {0: 0}, {0: 6}, 1 << 20)) == {0: 6}
    assert [r.offset for r in topic.records()] == [0, 1, 4, 5]


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
