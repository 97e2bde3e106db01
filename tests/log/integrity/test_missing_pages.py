"""A page that is lost: everybody is told which offsets, nobody waits for it, and whoever may goes on behind it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import tailrace
from tailrace.errors import Damaged, Lost
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.integrity.missing_pages import gap_at
from tailrace.log.read.gaps import skim
from tailrace.log.topic import Topic
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.attempt import roll
from tailrace.log.write.lookup import GONE, find
from tailrace.storage.tables import Delete, Set, Update
from tests.log.homes import EVERYWHERE, homes

home = homes(EVERYWHERE)
LOST = (Lost(0, 10, 15), Lost(1, 10, 15))


@pytest.fixture
def topic(home: Home) -> Topic:
    """Four pages of five records of each of two partitions, of the times 0, 10, 20 and 30, and five in the head."""
    topic = home.create_topic("t", 2)
    for n in range(5):
        with topic.transaction() as t:
            for at in range(10):
                t.send(b"%d" % at, b"%d" % n, partition=at % 2, timestamp=10 * n)
        if n < 4:
            home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    return topic


def lose(topic: Topic, *numbers: int) -> None:
    for number in numbers:
        topic.store.table.write(Delete(heads.page_key(topic.id, number)))


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def read(topic: Topic) -> list[int]:
    return [record.offset for record in topic.records(0)]


def test_what_is_there_is_no_gap(home: Home, topic: Topic) -> None:
    for number in range(6):
        assert home.store.run(gap_at(topic.log, number)) is None
    home.store.run(raise_floor(topic.log, {0: 5, 1: 5}))
    assert home.store.run(drop_pages(topic.log)) == 1
    assert home.store.run(gap_at(topic.log, 0)) is None, "removed on purpose"


@pytest.mark.parametrize(
    ("gone", "number", "lost"),
    [((2,), 2, LOST), ((1, 2), 1, (Lost(0, 5, 15), Lost(1, 5, 15))), ((0,), 0, (Lost(0, 0, 5), Lost(1, 0, 5))),
     ((3,), 3, (Lost(0, 15, 20), Lost(1, 15, 20)))],
)  # fmt: skip
def test_a_gap_is_known_from_each_of_its_pages(
    home: Home, topic: Topic, gone: tuple[int, ...], number: int, lost: tuple[Lost, ...]
) -> None:
    lose(topic, *gone)
    for one in gone:
        gap = home.store.run(gap_at(topic.log, one))
        assert gap is not None
        assert (gap.number, gap.after.first, gap.lost) == (number, gone[-1] + 1, lost)
    assert [d.lost for d in home.scrub().damages] == [lost]


def test_a_page_that_does_not_join(home: Home, topic: Topic) -> None:
    change = Set("base", {"0": 12, "1": 10})
    home.store.table.write(Update(heads.page_key(topic.id, 2), (change,)))
    with pytest.raises(Damaged) as caught:
        read(topic)
    assert caught.value.lost == (Lost(0, 10, 12),)


def test_a_reader_is_told_exactly_which_offsets(home: Home, topic: Topic) -> None:
    lose(topic, 2)
    with pytest.raises(Damaged, match="page 2 of the references of 't' is missing, and with it offsets 10") as caught:
        read(topic)
    assert (caught.value.topic, caught.value.lost) == ("t", LOST)
    topic.quarantine(LOST, "lost")
    assert read(topic) == [*range(10), *range(15, 25)]


def test_a_search_by_time(home: Home, topic: Topic) -> None:
    lose(topic, 2)
    with pytest.raises(Damaged):
        topic.offset_at(0, at(20))
    assert topic.offset_at(0, at(40)) == 20
    topic.quarantine(LOST, "lost")
    assert topic.offset_at(0, at(20)) == 15


def test_how_far_one_gets_is_told_over_what_is_quarantined(home: Home, topic: Topic) -> None:
    lose(topic, 2)
    with pytest.raises(Damaged):
        home.store.run(skim(topic.log, {0: 5}, {0: 25}, 1 << 20))
    topic.quarantine(LOST, "lost")
    assert home.store.run(skim(topic.log, {0: 5}, {0: 25}, 1 << 20)) == {0: 25}


def test_an_append_in_doubt_that_may_have_been_there(home: Home, topic: Topic) -> None:
    lose(topic, 2)
    head = home.store.run(topic.log.head())
    assert home.store.run(find(topic.log, head, "f" * 24, 0, [2])) is GONE


def test_scrub_ends_though_a_named_producer_wrote_there(home: Home, topic: Topic) -> None:
    topic.named_producer("loader").send_batch([(b"k", b"v")])
    home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    lose(topic, 4)
    assert [d.kind for d in home.scrub().damages] == ["page"]


def test_upkeep_says_so_and_cleans_nothing(home: Home, topic: Topic) -> None:
    lose(topic, 2)
    (done,) = home.upkeep("t")
    assert "page 2 of the references of 't' is missing" in (done.error or "")


def test_retention_goes_on_behind_it(home: Home, topic: Topic) -> None:
    lose(topic, 0)
    home.store.run(raise_floor(topic.log, {0: 4, 1: 5}))
    assert home.store.run(drop_pages(topic.log)) == 0, "one of them may still be read"
    home.store.run(raise_floor(topic.log, {0: 10, 1: 10}))
    assert home.store.run(drop_pages(topic.log)) == 1
    assert home.store.run(topic.log.head()).first == 2
    assert home.scrub().clean
    assert home.upkeep("t")[0].error is None


@pytest.mark.parametrize("gone", [(2,), (3,), (0, 1)])
def test_a_copy_has_it_too(home: Home, topic: Topic, gone: tuple[int, ...], tmp_path: Path) -> None:
    lose(topic, *gone)
    done = home.copy(tmp_path / "copy")
    assert [d.lost for d in done.report.damages] == [d.lost for d in home.scrub().damages]
    with tailrace.open(tmp_path / "copy") as copied:
        assert copied.topic("t").ends() == topic.ends()
