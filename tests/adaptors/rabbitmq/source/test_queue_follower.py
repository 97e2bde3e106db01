"""Following a queue: nothing is lost, what comes again is known by its id, what happens to the queue is noticed."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tailrace.adaptors.rabbitmq.source import queue_follower
from tailrace.adaptors.rabbitmq.source.delivery import milliseconds
from tailrace.adaptors.rabbitmq.source.seen_ids import BUCKET, SeenIds, mark_of
from tailrace.errors import BadInput
from tailrace.log.record import Op
from tests.adaptors.rabbitmq.drive import Drive
from tests.adaptors.rabbitmq.place import Place


def some(first: int, end: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, end)]


def numbers(drive: Drive) -> list[int]:
    return [message.data["n"] for message in drive.messages]


def id_of(document: dict[str, int]) -> str:
    return f"id-{document['n']}"


def test_what_was_stored_and_not_acknowledged_is_known_by_its_id(place: Place) -> None:
    place.make("orders")
    place.send("orders", some(0, 10), message_id=id_of)
    with Drive(place, queues=["orders"]).begin() as drive:
        drive.until(lambda: len(drive.messages) >= 10, keep=False)
        drive.messages.clear()
        drive.stop()  # nothing was stored: all come again
        drive.count(10, keep=False)
        (split,) = drive.position["splits"]
        drive.position["splits"][split] = drive._following[split].__next__().position
        drive.stop()  # all is stored, and nothing acknowledged
        place.send("orders", some(10, 12), message_id=id_of)
        drive.count(12)
        drive.catch_up()
        assert numbers(drive) == list(range(12))
        drive.stop()
    assert place.ready("orders") == 0, "repeats are acknowledged, too"


def test_messages_without_an_id_may_come_twice_and_never_get_lost(place: Place) -> None:
    place.make("orders")
    place.send("orders", some(0, 5))
    with Drive(place, queues=["orders"]).begin() as drive:
        drive.count(5, keep=False)
        drive.stop()
        drive.count(10)
        drive.catch_up()
        assert numbers(drive) == [*range(5), *range(5)]
        drive.stop()
    assert place.ready("orders") == 0


def test_ids_and_names_of_headers_need_not_be_text(place: Place) -> None:
    place.make("orders")
    place.send("orders", some(0, 2), message_id=b"\xff\xfe", correlation_id=b"\xff", headers={b"h\xff": b"\xff"})
    with Drive(place, queues=["orders"], metadata=True, key="correlation_id", keys="bytes").begin() as drive:
        drive.count(2, keep=False)
        assert json.loads(drive.messages[0].data["_rabbitmq"])["headers"] == [["h\ufffd", "/w=="]]
        drive.messages.clear()
        (split,) = drive.position["splits"]
        drive.position["splits"][split] = drive._following[split].__next__().position
        drive.stop()  # all is stored, and nothing acknowledged: both come again, and are known
        place.send("orders", some(2, 3))
        drive.count(1)
        drive.catch_up()
        assert numbers(drive) == [2]


def test_one_id_with_another_body_is_another_message(place: Place) -> None:
    place.make("orders")
    place.send("orders", [{"n": 1}, {"n": 2}, {"n": 1}], message_id="always-the-same")
    with Drive(place, queues=["orders"], key="none").begin() as drive:
        drive.catch_up()
        assert numbers(drive) == [1, 2]
    place.send("orders", [{"n": 1}, {"n": 1}], message_id="same")
    with Drive(place, queues=["orders"], key="none", remember=0).begin() as drive:
        drive.catch_up()
        assert numbers(drive) == [1, 1]


def test_a_repeat_is_not_acknowledged_before_what_it_repeats_is_stored(place: Place) -> None:
    place.make("orders")
    place.send("orders", some(0, 1) * 3, message_id=id_of)
    with Drive(place, queues=["orders"]).begin() as drive:
        ((split, begun),) = drive.position["splits"].items()
        for _ in range(5):
            drive.step(keep=False)
            drive._readers[split].acknowledge(begun)
        assert numbers(drive) == [0]
    place.wait(lambda: place.ready("orders") == 3)


def test_times_in_seconds_in_milliseconds_and_beyond_every_calendar() -> None:
    now = 1_700_000_000
    assert milliseconds({}, now) == milliseconds({}, now * 1000) == milliseconds({"timestamp_in_ms": now * 1000}, 5)
    assert milliseconds({}, None) == milliseconds({}, 1 << 63) == milliseconds({"timestamp_in_ms": 1 << 62}, 5) == 0
    assert milliseconds({"timestamp_in_ms": "soon"}, now) == now * 1000


def test_the_position_is_bounded() -> None:
    recent = SeenIds(None, 3 * BUCKET)
    marks = [mark_of(f"id {n}", b"body") for n in range(20 * BUCKET)]
    for mark in marks:
        recent.take(mark)
    stored = recent.stored()
    assert (stored["n"], len(stored["recent"])) == (20 * BUCKET, 4)
    again = SeenIds(stored, 3 * BUCKET)
    assert all(again.has(mark) for mark in marks[-3 * BUCKET :])
    assert not again.has(marks[0])


def test_no_more_than_prefetch_are_taken_before_they_are_stored(place: Place) -> None:
    place.make("orders")
    place.send("orders", some(0, 50))
    with Drive(place, queues=["orders"], prefetch=10).begin() as drive:
        drive.count(10, keep=False)
        for _ in range(5):
            drive.step(keep=False)
        assert numbers(drive) == list(range(10))
        drive.count(50)
        assert numbers(drive) == list(range(50))


def test_a_queue_that_is_deleted_is_noticed_and_one_made_again_is_read(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    queue = place.make("orders")
    place.send("orders", some(0, 3))
    with Drive(place, queues=["orders"]).begin() as drive, caplog.at_level(logging.WARNING, "tailrace"):
        drive.count(3)
        place.delete("orders")
        drive.until(lambda: drive.ended == [queue])
        assert "is deleted, and what was in it is lost" in caplog.text
        place.make("orders")
        place.send("orders", some(3, 6))
        drive.count(6)
        assert numbers(drive) == list(range(6))
        assert "was made again" in caplog.text


def test_a_queue_that_is_purged_is_noticed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.make("orders")
    place.send("orders", some(0, 100))
    with Drive(place, queues=["orders"], prefetch=5).begin() as drive, caplog.at_level(logging.WARNING, "tailrace"):
        drive.count(5, keep=False)
        place.purge("orders")
        drive.until(lambda: "that were not delivered here" in caplog.text, keep=False)
        assert f"95 messages of the queue {place.prefix}orders" in caplog.text
    assert numbers(drive) == list(range(5))


def test_nothing_is_missed_while_all_goes_well(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the queue is looked at while it is emptied and filled."""
    monkeypatch.setattr(queue_follower, "LOOK_SECONDS", 0.001)
    place.make("orders")
    place.send("orders", some(0, 400))
    with Drive(place, queues=["orders"], prefetch=5).begin() as drive, caplog.at_level(logging.WARNING, "tailrace"):
        drive.count(200)
        place.send("orders", some(400, 450))
        drive.count(450)
        drive.catch_up()
    assert numbers(drive) == list(range(450))
    assert not caplog.records


def test_documents_by_format_and_key(place: Place) -> None:
    queue = place.make("orders")

    def read(bodies: list[Any], settings: dict[str, Any], **properties: Any) -> list[Any]:
        place.send("orders", bodies, **properties)
        with Drive(place, queues=["orders"], **settings).begin() as drive:
            return [(message.op, message.keys, message.data) for message in drive.catch_up()]

    own = ("_partition", "_offset")
    assert read([{"a": 1}, [2]], {}, message_id="m") == [
        (Op.INSERT, ("_key",), {"_key": "m", "a": 1}),
        (Op.INSERT, ("_key",), {"_key": "m", "value": [2]}),
    ]
    assert read([b"\xc3\xa4"], {"format": "text", "key": "none"}) == [
        (Op.INSERT, own, {"_partition": 0, "_offset": 0, "value": "ä"})
    ]
    assert read([b"{}"], {"key": "routing_key"}) == [(Op.INSERT, ("_key",), {"_key": queue})]
    changed = read([{"a": 1}, b"null"], {"key": "header:key"}, headers={"key": '{"id": 7}'})
    assert changed == [(Op.INSERT, ("id",), {"id": 7, "a": 1}), (Op.DELETE, ("id",), {"id": 7})]
    ((_, keys, raw),) = read([b"\xff"], {"format": "bytes"}, message_id="m", headers={"x": 1, "y": "z"}, timestamp=5)
    assert (keys, raw["value"], raw["key"]) == (("partition", "offset"), b"\xff", b"m")
    assert raw["headers"] == [{"name": "x", "value": b"1"}, {"name": "y", "value": b"z"}]
    ((_, _, told),) = read([{"a": 1}], {"metadata": True}, message_id="m", headers={"x": 1})
    assert '"headers":[["x","1"]]' in told["_rabbitmq"]


def test_a_message_that_is_not_in_its_format_stops_there_and_stays(place: Place) -> None:
    place.make("orders")
    place.send("orders", [b"no json"], message_id="m-7")
    said = r"message 0 with the message id 'm-7' of the queue .*orders is not JSON"
    with Drive(place, queues=["orders"]).begin() as drive, pytest.raises(BadInput, match=said):
        drive.catch_up()
    place.wait(lambda: place.ready("orders") == 1)
