"""Following streams: exactly once, by offset; and that a stream is still the one that was read."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

import pytest
from rstream import AMQPMessage, CompressionType, Producer

from tailrace.adaptors.rabbitmq.source import stream_follower
from tailrace.adaptors.rabbitmq.source.stream_client import StreamClient
from tailrace.errors import PositionLost, Unavailable
from tests.adaptors.rabbitmq.drive import Drive
from tests.adaptors.rabbitmq.place import Place
from tests.servers.rabbitmq import RabbitServer


def some(first: int, end: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, end)]


def numbers(drive: Drive) -> list[int]:
    return [message.data["n"] for message in drive.messages]


def stream(place: Place, name: str = "orders", **arguments: Any) -> str:
    return place.make(name, x_queue_type="stream", **arguments)


def produce(place: Place, name: str, *batches: Sequence[Any] | tuple[CompressionType, Sequence[Any]]) -> None:
    """Send by the stream protocol: messages, or sub-entries of some."""

    async def work() -> None:
        async with Producer("127.0.0.1", place.stream_port, username="guest", password="guest") as producer:
            for batch in batches:
                if isinstance(batch, tuple):
                    kind, messages = batch
                    await producer.send_sub_entry(name, messages, compression_type=kind)
                    await asyncio.sleep(0.2)
                else:
                    for message in batch:
                        await producer.send_wait(name, message)

    asyncio.run(work())


def test_messages_of_every_kind_have_their_offsets(place: Place) -> None:
    name = stream(place)
    produce(
        place, name, [b'"raw"', AMQPMessage(body=b'"amqp"', application_properties={"x": "y"})],
        (CompressionType.Gzip, [AMQPMessage(body=f'"{n}"'.encode()) for n in range(3)]),
        (CompressionType.No, [AMQPMessage(body=b'"plain"')]),
    )  # fmt: skip
    place.send("orders", ["by AMQP 0.9.1"], message_id="m", headers={"h": 1})
    with Drive(place, streams=["orders"], format="bytes").begin() as drive:
        drive.catch_up()
    found = [(m.data["offset"], m.data["key"], m.data["value"]) for m in drive.messages]
    texts = [b'"raw"', b'"amqp"', b'"0"', b'"1"', b'"2"', b'"plain"', b'"by AMQP 0.9.1"']
    assert found == [(n, b"m" if n == 6 else None, text) for n, text in enumerate(texts)]
    assert drive.messages[1].data["headers"] == [{"name": "x", "value": b"y"}]
    assert drive.messages[6].data["headers"] == [{"name": "h", "value": b"1"}]


def test_each_message_comes_once_wherever_it_is_gone_on_from(place: Place) -> None:
    stream(place)
    place.send("orders", some(0, 20))
    with Drive(place, streams=["orders"], batch_rows=7).begin() as drive:
        drive.catch_up()
        for first in range(20, 60, 8):
            place.send("orders", some(first, first + 8))
            drive.stop()
            drive.step(keep=False)  # and a crash before it is stored
            drive.stop()
            drive.messages = drive.messages[:first]
            drive.count(first + 8)
        drive.catch_up()
        assert numbers(drive) == list(range(60))


def test_it_starts_where_the_settings_say(place: Place) -> None:
    stream(place)
    place.send("orders", some(0, 5))
    time.sleep(0.01)
    moment = dt.datetime.now(dt.UTC).isoformat()
    time.sleep(0.01)
    place.send("orders", some(5, 9))
    for start, expected in (("earliest", range(9)), (moment, range(5, 9)), ("latest", ()), ("2040-01-01", ())):
        with Drive(place, streams=["orders"], start=start).begin() as drive:
            drive.catch_up()
            assert numbers(drive) == list(expected), start


def test_an_empty_stream_is_read_once_something_comes(place: Place) -> None:
    stream(place)
    with Drive(place, streams=["orders"], start="latest").begin() as drive:
        assert drive.catch_up() == []
        place.send("orders", some(0, 3))
        drive.count(3)
        assert numbers(drive) == [0, 1, 2]


def test_the_partitions_of_a_super_stream_are_followed_each(place: Place, rabbitmq: RabbitServer) -> None:
    name = place.prefix + "invoices"
    rabbitmq.ctl("add_super_stream", name, "--partitions", "3", tool="rabbitmq-streams")
    for n in range(3):
        place.send(f"invoices-{n}", some(10 * n, 10 * n + 10))
    with Drive(place, super_streams=["invoices"]).begin() as drive:
        drive.catch_up()
        assert sorted(drive.position["splits"]) == [f"super/{name}/{name}-{n}" for n in range(3)]
        assert sorted(numbers(drive)) == list(range(30))
        assert {(m.data["_partition"], m.namespace) for m in drive.messages} == {(n, name) for n in range(3)}
    rabbitmq.ctl("delete_super_stream", name, tool="rabbitmq-streams")


def test_a_stream_that_was_made_again_is_another(place: Place) -> None:
    stream(place)
    place.send("orders", some(0, 5))
    with Drive(place, streams=["orders"]).begin() as drive:
        drive.catch_up()
        drive.stop()
        place.delete("orders")
        stream(place)
        with pytest.raises(PositionLost, match=r"ends at offset 0, before the pipeline's 5.*another name"):
            drive.catch_up()
        drive.stop()
        place.send("orders", some(100, 120))
        with pytest.raises(PositionLost, match="the message at offset 4 is another than the one that was read"):
            drive.catch_up()
    assert numbers(drive) == list(range(5))


def test_what_retention_removed_is_missed_aloud(place: Place) -> None:
    stream(place, x_max_length_bytes=20_000, x_stream_max_segment_size_bytes=10_000)
    place.send("orders", some(0, 5))
    with Drive(place, streams=["orders"]).begin() as drive:
        drive.catch_up()
        drive.stop()
        for first in range(0, 1000, 100):
            place.send("orders", [{"n": n, "much": "x" * 1000} for n in range(first, first + 100)])
        with pytest.raises(PositionLost, match=r"it begins at offset \d+ now, and the pipeline was at 5"):
            drive.catch_up()
    with Drive(place, streams=["orders"]).begin() as fresh:
        assert fresh.catch_up()[-1].data["n"] == 999


def test_a_broker_that_is_slow_has_lost_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first chunk does not come for long.  Then it comes, and nothing is missed."""
    stream(place)
    place.send("orders", some(0, 5))
    with Drive(place, streams=["orders"]).begin() as drive:
        drive.catch_up()
        drive.stop()
        place.send("orders", some(5, 8))
        with monkeypatch.context() as patch:
            patch.setattr(stream_follower, "FIRST_SECONDS", 0.0)
            patch.setattr(stream_follower, "end_of", lambda *_: (8, "", 0))
            patch.setattr(StreamClient, "chunk", lambda *_: None)
            with pytest.raises(Unavailable, match=r"does not give the messages .* from offset 4 on"):
                drive.catch_up()
        drive.stop()
        drive.catch_up()
    assert numbers(drive) == list(range(8))


def test_a_stream_that_is_deleted_has_ended(place: Place) -> None:
    name = stream(place)
    place.send("orders", some(0, 5))
    with Drive(place, streams=["orders"]).begin() as drive:
        drive.count(5)
        place.delete("orders")
        with pytest.raises(Unavailable, match=f"has ended reading the stream {name}"):
            drive.until(lambda: False)
        drive.stop()
        drive.until(lambda: drive.ended == [name])
