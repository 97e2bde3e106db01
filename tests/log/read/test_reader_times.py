"""Reading from a time: the first record at or after it, whatever else happens meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tailrace.coordination import guard
from tailrace.errors import BadInput, Damaged
from tailrace.home import Home
from tailrace.log.format import head as heads
from tailrace.log.format.head import Page
from tailrace.log.read.seek import offset_at
from tailrace.log.topic import Topic
from tailrace.log.upkeep.clean import clean
from tailrace.log.upkeep.merge import merge
from tailrace.log.upkeep.retention import raise_floor
from tailrace.log.write.attempt import roll
from tailrace.storage.calls import Store
from tailrace.storage.tables import LAST
from tests.log.driving import TABLES, Driven, simulated_home, view


# --- by time
def timed(kept: str, stamps: list[int], rolls: tuple[int, ...] = ()) -> tuple[Home, Topic]:
    """A topic of one partition, each record in a chunk of its own."""
    home, _ = simulated_home(kept)
    topic = home.create_topic("t")
    for n, stamp in enumerate(stamps):
        with topic.transaction() as t:
            t.send(None, b"%d" % n, timestamp=stamp)
        if n in rolls:
            home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    return home, topic


def first_at(stamps: list[int], at: int) -> int:
    return next((n for n, stamp in enumerate(stamps) if stamp >= at), len(stamps))


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("rolls", [(), (0, 2), (1, 2, 3, 4, 5)])
def test_a_time_is_the_first_record_at_or_after_it(kept: str, rolls: tuple[int, ...]) -> None:
    stamps = [1000, 3000, 2000, 5000, 4000, 6000, 6000]
    _, topic = timed(kept, stamps, rolls)
    for at in [0, 999, 1000, 1001, 2000, 2500, 3001, 5000, 5001, 6000, 6001]:
        assert topic.offset_at(0, datetime.fromtimestamp(at / 1000, UTC)) == first_at(stamps, at), at


def test_a_time_inside_a_chunk() -> None:
    home, _ = simulated_home()
    topic = home.create_topic("t")
    with topic.transaction() as t:
        for stamp in (1000, 2000, 3000):
            t.send(None, b"", timestamp=stamp)
    assert topic.offset_at(0, datetime.fromtimestamp(2, UTC)) == 1
    assert topic.offset_at(0, datetime.fromtimestamp(2.5, UTC)) == 2


@pytest.mark.parametrize("rolls", [(), (4,)])
def test_a_time_below_the_floor_is_the_floor(rolls: tuple[int, ...]) -> None:
    """Also where the page with older records is still there."""
    home, topic = timed("objects", [1000, 2000, 3000, 4000, 5000], rolls)
    home.store.run(raise_floor(topic.log, {0: 3}))
    found = [topic.offset_at(0, datetime.fromtimestamp(at, UTC)) for at in (0, 1, 3, 4, 4.5, 5, 6)]
    assert found == [3, 3, 3, 3, 4, 4, 5]


def test_a_time_looked_for_while_the_head_is_rolled() -> None:
    """The head moves on between the looks: no record in between may be passed over."""
    for calls in range(12):
        home, _ = simulated_home("objects")
        store, topic = home.store, home.create_topic("t", 2)

        def send(partition: int, stamp: int, store: Store = store, topic: Topic = topic) -> None:
            with topic.transaction() as t:
                t.send(None, b"", timestamp=stamp, partition=partition)
            store.run(roll(topic.log, store.run(topic.log.head())))

        send(1, 6000)
        steps = Driven(store, offset_at(view(store, topic.id), 0, 5000))
        for _ in range(calls):
            if not steps.done:
                steps.step()
        for stamp in (1000, 5000, 7000):
            send(0, stamp)
        assert steps.run() <= 1, calls


def test_a_time_looked_for_while_pages_are_merged_and_cleaned() -> None:
    stamps = [1000, 2000, 3000, 4000, 5000]
    for calls in range(16):
        home, topic = timed("objects", stamps, (0, 1, 2, 3))
        store = home.store
        steps = Driven(store, offset_at(view(store, topic.id), 0, 3000))
        for _ in range(calls):
            if not steps.done:
                steps.step()
        found = store.run(guard.read_all(heads.head_key(topic.id).p, 0, LAST - 1))
        assert store.run(merge(topic.log, [Page.of(item) for item in found]))
        for _ in range(2):
            store.run(clean(topic.log))
        assert steps.run() == 2, calls


def test_a_time_whose_bytes_are_gone_is_damage() -> None:
    home, topic = timed("objects", [1000, 2000], (0,))
    home.store.objects.items.clear()
    with pytest.raises(Damaged, match="is gone"):
        topic.offset_at(0, datetime.fromtimestamp(1, UTC))


def test_positions() -> None:
    """Earliest, latest, an offset, a time; nothing else."""
    home, topic = timed("joined", [1000, 2000, 3000])
    home.store.run(raise_floor(topic.log, {0: 1}))
    assert topic.offset_at(0, "earliest") == 1
    assert topic.offset_at(0, "latest") == 3
    assert topic.offset_at(0, 2) == 2
    assert topic.offset_at(0, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1, "not below the floor"
    assert topic.offset_at(0, datetime(2020, 1, 1, tzinfo=UTC)) == 3
    for bad in (-1, True, "first", None, 1.0):
        with pytest.raises(BadInput, match="'earliest', 'latest', an offset from 0 or a datetime"):
            topic.offset_at(0, bad)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="time zone"):
        topic.offset_at(0, datetime(2020, 1, 1))
