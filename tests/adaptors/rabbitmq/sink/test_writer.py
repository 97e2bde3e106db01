"""The writer passes the contract; what its messages look like, and that none is dropped in silence."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptors.contract import Who
from tailrace.adaptors.rabbitmq.sink import publication
from tailrace.adaptors.rabbitmq.sink.writer import RabbitWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadSetting, NotReady, Rejected, Unavailable
from tailrace.log.record import Mode, Op
from tailrace.testing import WriterContract
from tests.adaptors.rabbitmq.place import Place
from tests.servers.rabbitmq import RabbitServer

ME = Who("pipeline", "writer", 1)


class Copies:
    """A queue that messages are published to."""

    namespace = "orders"

    def __init__(self, place: Place) -> None:
        self._place = place
        self._held: dict[str, Any] = {}
        place.make("orders")

    def writer(self) -> RabbitWriter:
        """A new writer to it."""
        return self._place.writer()

    def documents(self) -> list[dict[str, Any]]:
        """What a consumer keeps who takes the last of each key."""
        for one in self._place.take("orders"):
            key, before = one.headers["key"], self._held.get(one.headers["key"]) or {}
            left = {name: before[name] for name in json.loads(one.headers.get("unset", "[]"))}
            self._held[key] = None if one.document is None else {**one.document, **left}
        return [document for document in self._held.values() if document is not None]


class TestWriter(WriterContract):
    @pytest.fixture
    def sink(self, place: Place) -> Copies:
        return Copies(place)


def rows(namespace: str, ids: Iterable[int], op: Op = Op.UPDATE, text: str = "text") -> pa.RecordBatch:
    """Rows of a namespace."""
    numbers = list(ids)
    columns = pa.RecordBatch.from_pydict(
        {"id": pa.array(numbers, pa.int64()), "text": pa.array([f"{text} {n}" for n in numbers], pa.string())}
    )
    return make_rows(namespace, columns, ["id"], op=op, mode=Mode.SYNC, timestamp=1_700_000_000_123)


def written(place: Place, *batches: pa.RecordBatch, **settings: Any) -> None:
    """Write batches of rows by a writer of its own."""
    with contextlib.closing(place.writer(**settings)) as writer:
        writer.check()
        writer.finish([writer.stage(batches)], ME, {"0": 1})


def test_a_message_says_where_it_stands(place: Place) -> None:
    place.make("orders")
    batch = placed(rows("orders", [7]), 3, pa.array([41], pa.int64()))
    written(place, batch, placed(rows("orders", [7], Op.DELETE), 3, pa.array([42], pa.int64())))
    first, second = place.take("orders")
    assert first.document == {"id": 7, "text": "text 7"}
    assert first.headers == {
        "partition": 3, "offset": 41, "namespace": "orders", "op": "update", "key": "7",
        "timestamp_in_ms": 1_700_000_000_123,
    }  # fmt: skip
    found = first.properties
    assert (found.message_id, found.app_id, found.delivery_mode) == ("tailrace:orders:3-41", "tailrace", 2)
    assert (found.content_type, found.timestamp) == ("application/json", 1_700_000_000)
    assert (second.body, second.headers["op"], second.properties.message_id) == (
        b"null",
        "delete",
        "tailrace:orders:3-42",
    )


def test_a_repeat_has_the_same_id_and_what_a_function_adds_another(place: Place) -> None:
    place.make("orders")
    twice = pa.concat_batches([rows("orders", [7])] * 2)
    for _ in range(2):
        written(place, placed(twice, 0, pa.array([5, 5], pa.int64())), name="mine")
    ids = [one.properties.message_id for one in place.take("orders")]
    assert ids == ["mine:orders:0-5", "mine:orders:0-5-1"] * 2


@pytest.mark.parametrize(("calls", "seconds"), [(1, 0.9), (30, 0.04)])
def test_slow_functions_are_no_broker_that_confirms_nothing(
    calls: int, seconds: float, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Confirms are read while functions run, and their time does not count as the broker's."""
    place.make("orders")
    monkeypatch.setattr(publication, "CONFIRM_SECONDS", 0.4)
    monkeypatch.setattr(publication, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(publication, "SEND_SECONDS", 0.1)
    most, confirmed = [0], publication.Publication._confirmed

    def noted(self: publication.Publication, frame: Any) -> None:
        most[0] = max(most[0], len(self._waiting))
        confirmed(self, frame)

    def slow() -> Iterator[pa.RecordBatch]:
        for n in range(-1, calls):
            time.sleep(seconds if n >= 0 else 0)
            yield rows("orders", [n])

    monkeypatch.setattr(publication.Publication, "_confirmed", noted)
    with contextlib.closing(place.writer()) as writer:
        writer.stage(slow())
    assert len(place.take("orders")) == calls + 1
    assert most[0] < 10


def test_exchanges_and_routing_keys_by_template(place: Place) -> None:
    queue, exchange = place.make("updates"), place.prefix + "shop"
    channel = place.channel()
    channel.exchange_declare(exchange, exchange_type="topic")
    channel.queue_bind(queue, exchange, "orders.update.#")
    way = {"exchange": place.prefix + "{data.shop}", "routing_key": "{namespace}.{op}.{id}"}
    columns = pa.RecordBatch.from_pydict({"id": [1, 2], "shop": ["shop", "shop"]})
    written(place, make_rows("orders", columns, ["id"], op=Op.UPDATE), **way)
    assert [one.routing_key for one in place.take("updates")] == ["orders.update.1", "orders.update.2"]
    with pytest.raises(Rejected, match=r"it has no 'shop', which exchange is made of"):
        written(place, rows("orders", [1]), **way)
    with pytest.raises(Rejected, match="routing_key would be longer than 255 bytes"):
        written(place, rows("o" * 256, [1]), exchange=exchange, routing_key="{namespace}")
    with pytest.raises(BadSetting, match=r"routing_key: \{date\} is none of"):
        place.writer(routing_key="{date}")
    channel.exchange_delete(exchange)


def test_a_message_that_no_queue_takes_stops_the_writer(place: Place) -> None:
    with pytest.raises(
        NotReady, match=r"default exchange has no queue for .*absent.*rabbitmqadmin declare queue name="
    ):
        written(place, rows("absent", range(5)))
    exchange = place.prefix + "empty"
    channel = place.channel()
    channel.exchange_declare(exchange)
    with pytest.raises(NotReady, match=f"rabbitmqadmin declare binding source={exchange} destination=QUEUE"):
        written(place, rows("orders", [1]), exchange=exchange)
    channel.exchange_delete(exchange)


def test_one_that_no_queue_takes_is_blamed_where_the_way_depends_on_the_row(place: Place) -> None:
    place.make("1")
    with pytest.raises(Rejected, match="no queue for the routing key") as caught:
        written(place, rows("orders", [1, 2]), routing_key=place.prefix + "{id}")
    assert (caught.value.namespace, caught.value.id) == ("orders", "2")


def test_an_envelope_for_each_message(place: Place) -> None:
    place.make("orders")
    written(place, rows("orders", [1], Op.INSERT), rows("orders", [1], Op.DELETE), format="debezium", key="json")
    first, second = place.take("orders")
    assert (first.document["op"], first.document["after"]) == ("c", {"id": 1, "text": "text 1"})
    assert (second.document["op"], second.document["before"]["id"]) == ("d", 1)
    assert first.headers["key"] == '{"id":1}'


def test_a_queue_that_is_full_is_waited_for(place: Place) -> None:
    place.make("orders", x_max_length=3, x_overflow="reject-publish")
    with pytest.raises(Unavailable, match="a queue is full"):
        written(place, rows("orders", range(10)))


def test_a_broker_that_blocks_publishers_is_waited_for(place: Place, rabbitmq: RabbitServer) -> None:
    place.make("orders")
    rabbitmq.ctl("set_vm_memory_high_watermark", "0.00001")
    try:
        with pytest.raises(Unavailable, match=r"blocks publishers: low on memory; rabbitmqctl status"):
            written(place, rows("orders", [1]), blocked_seconds=0.1)
        waiting = threading.Thread(target=written, args=(place, rows("orders", [2])), daemon=True)
        waiting.start()
        time.sleep(0.5)
        assert waiting.is_alive()
    finally:
        rabbitmq.ctl("set_vm_memory_high_watermark", "0.4")
    waiting.join(60)
    assert not waiting.is_alive()
    assert 2 in [one.document["id"] for one in place.take("orders")]


def test_missing_places_are_said_before_anything_is_published(place: Place) -> None:
    with pytest.raises(NotReady, match="has no queue 'absent'; rabbitmqadmin declare queue name=absent durable=true"):
        place.writer(routing_key="absent").check()
    with pytest.raises(NotReady, match=r"no exchange 'absent'.*rabbitmqadmin declare exchange name=absent"):
        place.writer(exchange="absent").check()
    with pytest.raises(NotReady, match=r"no exchange 'absent'.*rabbitmqadmin declare exchange name=absent"):
        place.writer(exchange="{namespace}").stage([rows("absent", [1])])
