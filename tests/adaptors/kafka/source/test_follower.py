"""Following: where it begins, what comes and goes meanwhile, and that nothing is ever jumped over in silence."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer

from tailrace.errors import BadSetting, PositionLost
from tests.adaptors.kafka.drive import Drive
from tests.adaptors.kafka.place import Place


def some(first: int, end: int) -> list[tuple[object, object]]:
    return [({"id": n}, {"id": n, "text": f"text {n}"}) for n in range(first, end)]


def ids(drive: Drive) -> list[int]:
    return [message.data["id"] for message in drive.messages]


def test_it_starts_where_the_settings_say(place: Place) -> None:
    place.make("orders", 2)
    day = 86_400_000
    place.send("orders", some(0, 5), timestamp=1_700_000_000_000)
    place.send("orders", some(5, 9), timestamp=1_700_000_000_000 + day)
    moment = dt.datetime.fromtimestamp(1_700_000_000 + day // 1000, dt.UTC).isoformat()
    for start, expected in (("earliest", range(9)), (moment, range(5, 9)), ("latest", range(0)), ("2040-01-01", ())):
        with Drive(place, ["orders"], start=start).begin() as drive:
            drive.catch_up()
            assert sorted(ids(drive)) == list(expected), start
    with pytest.raises(BadSetting, match="start: 'yesterday' is neither"):
        place.reader(start="yesterday").check()


def test_every_partition_is_in_one_group_and_keeps_its_order(place: Place) -> None:
    place.make("orders", 5)
    place.send("orders", some(0, 200))
    with Drive(place, ["orders"], receivers=3).begin() as drive:
        drive.catch_up()
        assert sorted(ids(drive)) == list(range(200))
        assert len(set(drive.splits)) == 3
    order: dict[int, list[int]] = {}
    for one in place.read("orders"):
        order.setdefault(one.partition, []).append(one.document["id"])
    found = ids(drive)
    for expected in order.values():
        assert [n for n in found if n in set(expected)] == expected


def test_topics_and_partitions_that_come_are_read_from_their_first_record(place: Place) -> None:
    place.make("orders", 1)
    with Drive(place, ["orders"], lambda name: name != "left-out", start="latest", receivers=2).begin() as drive:
        place.send("orders", some(0, 3))
        drive.count(3)
        place.make("late", 2)
        place.make("left-out", 1)
        place.send("late", some(10, 16))
        place.send("left-out", some(90, 95))
        drive.count(9)
        place.grow("orders", 4)
        place.send("orders", some(20, 50))
        drive.count(39)
        drive.stop()
        place.send("late", some(60, 63))
        drive.count(42)
    assert sorted(ids(drive)) == [*range(3), *range(10, 16), *range(20, 50), *range(60, 63)]


def test_records_that_retention_removed_are_missed_aloud(place: Place) -> None:
    place.make("orders", 1)
    place.send("orders", some(0, 10))
    with Drive(place, ["orders"]).begin() as drive:
        place.trim("orders", 0, 4)
        with pytest.raises(PositionLost, match=r"partition 0 now has offsets 4 to 10.*another name"):
            drive.catch_up()
    assert drive.messages == []


def test_a_position_beyond_the_end_is_not_read_from(place: Place) -> None:
    place.make("orders", 1)
    place.send("orders", some(0, 3))
    with Drive(place, ["orders"]).begin() as drive:
        drive.catch_up()
        topic = f"{place.prefix}orders"
        for split in drive.position["splits"].values():
            if topic in split["topics"]:
                split["topics"][topic][1]["0"] = [70, -1]
        with pytest.raises(PositionLost, match="offsets 0 to 3"):
            drive.catch_up()


def test_a_topic_that_was_made_again_is_another(place: Place) -> None:
    """The client itself goes on at the same offset, in silence."""
    place.make("orders", 1)
    place.send("orders", some(0, 5))
    with Drive(place, ["orders"], discover=60).begin() as drive:
        drive.catch_up()
        assert ids(drive) == list(range(5))
        place.delete("orders")
        place.make("orders", 1)
        place.send("orders", some(100, 120))
        with pytest.raises(PositionLost, match="deleted and made again"):
            drive.until(lambda: len(drive.messages) > 5)
        with pytest.raises(PositionLost, match="deleted and made again"):
            drive.catch_up()
    assert ids(drive) == list(range(5))


def test_a_topic_that_was_deleted_has_ended_and_others_go_on(place: Place) -> None:
    place.make("orders", 2)
    place.make("others", 2)
    place.send("orders", some(0, 5))
    with Drive(place, ["orders", "others"], receivers=2).begin() as drive:
        drive.count(5)
        place.delete("orders")
        drive.until(lambda: "orders" in drive.ended)
        place.send("others", some(5, 9))
        drive.count(9)
        drive.catch_up()
    assert sorted(ids(drive)) == list(range(9))


def test_only_committed_records_are_read(place: Place) -> None:
    place.make("orders", 1)
    producer = Producer({"bootstrap.servers": place.brokers, "transactional.id": place.prefix, "log_level": 0})
    producer.init_transactions(30)
    for n, end in enumerate((producer.commit_transaction, producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        for key, value in some(10 * n, 10 * n + 3):
            producer.produce(f"{place.prefix}orders", repr(value).replace("'", '"'), str(key))
        producer.flush(30)
        end(30)
    time.sleep(0.2)
    with Drive(place, ["orders"]).begin() as drive:
        drive.catch_up()
        assert ids(drive) == [0, 1, 2, 20, 21, 22]
        drive.catch_up()
        assert len(drive.messages) == 6
    with Drive(place, ["orders"], committed=False).begin() as drive:
        assert len(drive.catch_up()) == 9


def test_a_group_shows_how_far_it_is(place: Place) -> None:
    place.make("orders", 1)
    place.send("orders", some(0, 7))
    group = f"{place.prefix}group"
    with Drive(place, ["orders"], group=group).begin() as drive:
        drive.catch_up()

        def shown() -> list[int]:
            drive.step()
            asked = place.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            return [one.offset for one in asked[group].result().topic_partitions]

        drive.until(lambda: shown() == [7])
