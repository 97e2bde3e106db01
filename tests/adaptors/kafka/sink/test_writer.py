"""The writer passes the contract, exactly once to readers of committed records; what its records look like."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tailrace.adaptors.contract import TRUNCATE, Command, Who
from tailrace.adaptors.kafka.sink import stage
from tailrace.adaptors.kafka.sink import writer as sink
from tailrace.adaptors.kafka.sink.writer import KafkaWriter
from tailrace.adaptors.rows.provenance import placed
from tailrace.adaptors.rows.rows import make_rows
from tailrace.errors import BadSetting, Fenced, NotReady, Rejected, Unavailable
from tailrace.log.record import Mode, Op
from tailrace.testing import WriterContract
from tests.adaptors.kafka.drive import Drive
from tests.adaptors.kafka.place import PATIENCE, Place

ME = Who("pipeline", "writer", 1)


class Copies:
    """A topic that messages are appended to."""

    namespace = "orders"

    def __init__(self, place: Place) -> None:
        self._place = place
        place.make("orders", 3)

    def writer(self) -> KafkaWriter:
        """A new writer to it."""
        return self._place.writer()

    def documents(self) -> list[dict[str, Any]]:
        """What a reader of committed records keeps who takes the last of each key."""
        held: dict[bytes | None, Any] = {}
        for one in self._place.read("orders"):
            before = held.get(one.key) or {}
            left = {name: before[name] for name in json.loads(dict(one.headers).get("unset", b"[]"))}
            held[one.key] = None if one.value is None else {**one.document, **left}
        return [document for document in held.values() if document is not None]


class TestWriter(WriterContract):
    @pytest.fixture
    def sink(self, place: Place) -> Copies:
        return Copies(place)


def rows(
    namespace: str, ids: Iterable[int], op: Op = Op.UPDATE, text: str = "text", mode: Mode = Mode.SYNC
) -> pa.RecordBatch:
    """Rows of a namespace."""
    numbers = list(ids)
    columns = pa.RecordBatch.from_pydict(
        {"id": pa.array(numbers, pa.int64()), "text": pa.array([f"{text} {n}" for n in numbers], pa.string())}
    )
    return make_rows(namespace, columns, ["id"], op=op, mode=mode, timestamp=1_700_000_000_000)


def written(place: Place, *batches: pa.RecordBatch, offset: int = 1, **settings: Any) -> None:
    """Write batches of rows, in a transaction of a writer of its own."""
    with contextlib.closing(place.writer(**settings)) as writer:
        writer.finish([writer.stage(batches)], ME, {"0": offset})


def test_a_record_has_key_value_headers_and_time(place: Place) -> None:
    place.make("orders", 1)
    batch = placed(rows("orders", [7]), 3, pa.array([41], pa.int64()))
    written(place, batch, rows("orders", [7], Op.DELETE))
    first, second = place.read("orders")
    assert (first.key, first.document) == (b"7", {"id": 7, "text": "text 7"})
    assert first.headers == [("partition", b"3"), ("offset", b"41")]
    assert first.timestamp == 1_700_000_000_000
    assert (second.key, second.value) == (b"7", None)
    written(place, batch, offset=2, key="json", headers=False)
    last = place.read("orders")[-1]
    assert (last.key, last.headers) == (b'{"id":7}', [])


def test_keys_are_in_the_partitions_that_kafka_itself_gives_them(place: Place) -> None:
    place.make("orders", 7)
    written(place, rows("orders", range(200)))
    found = {one.key: one.partition for one in place.read("orders")}
    assert {key: murmur2(key or b"") % 7 for key in found} == found


def murmur2(data: bytes) -> int:
    """As org.apache.kafka.common.utils.Utils has it, made positive."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_envelopes_of_debezium(place: Place) -> None:
    place.make("public.orders", 1)
    partial = make_rows(
        "public.orders", _columns([2]), ["id"], op=Op.UPDATE,
        mode=Mode.SYNC, unset=pa.array([b"\x02"], pa.binary()), timestamp=5,
    )  # fmt: skip
    batches = [
        rows("public.orders", [1], Op.INSERT, mode=Mode.COPY), rows("public.orders", [2], Op.INSERT), partial,
        rows("public.orders", [1], Op.DELETE),
    ]  # fmt: skip
    written(place, *batches, format="debezium")
    found = place.read("public.orders")
    assert [one.key for one in found] == [b'{"id":1}', b'{"id":2}', b'{"id":2}', b'{"id":1}', b'{"id":1}']
    told = [one.document for one in found[:4]]
    assert [(one["op"], one["after"]) for one in told] == [
        ("r", {"id": 1, "text": "text 1"}),
        ("c", {"id": 2, "text": "text 2"}),
        ("u", {"id": 2, "text": "__debezium_unavailable_value"}),
        ("d", None),
    ]
    assert told[3]["before"] == {"id": 1, "text": "text 1"}
    assert (told[0]["source"]["schema"], told[0]["source"]["table"]) == ("public", "orders")
    assert found[4].value is None
    with Drive(place, ["public.orders"], format="debezium").begin() as drive:
        again = drive.catch_up()
    assert [(m.op, m.data, m.whole) for m in again] == [
        (Op.INSERT, {"id": 1, "text": "text 1"}, True),
        (Op.INSERT, {"id": 2, "text": "text 2"}, True),
        (Op.UPDATE, {"id": 2}, False),
        (Op.DELETE, {"id": 1}, True),
    ]


def _columns(ids: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.int64()), "text": pa.array([None] * len(ids), pa.string())}
    )


def test_a_truncate_is_in_every_partition(place: Place) -> None:
    place.make("orders", 2)
    how: dict[str, Any] = {"format": "debezium", "truncates": True}
    written(place, rows("orders", range(20)), **how)
    with contextlib.closing(place.writer(**how)) as writer:
        assert writer.commands == {TRUNCATE}
        writer.command("orders", Command(TRUNCATE), ME)
        writer.command("unknown", Command(TRUNCATE), ME)
    written(place, rows("orders", range(20, 40)), offset=2, **how)
    for q in range(2):
        told = [(one.document["op"], one.key) for one in place.read("orders") if one.partition == q]
        at = told.index(("t", None))
        assert 0 < at < len(told) - 1
        assert [op for op, _ in told].count("t") == 1
    (truncate, *_) = [one.document for one in place.read("orders") if one.document["op"] == "t"]
    assert (truncate["before"], truncate["after"], truncate["source"]["table"]) == (None, None, "orders")
    with contextlib.closing(place.writer(**how)) as other:
        other.claim(ME._replace(epoch=2))
        with contextlib.closing(place.writer(**how)) as late, pytest.raises(Fenced):
            late.command("orders", Command(TRUNCATE), ME)
    assert place.writer(format="debezium").commands == set()
    for wrong in ({"format": "json"}, {"topic": "all"}):
        with pytest.raises(BadSetting, match="truncates = true goes with format = 'debezium'"):
            place.writer(**{**how, **wrong})


def test_records_of_kafka_go_out_as_they_came(place: Place) -> None:
    place.make("orders", 1)
    place.make("copy", 1)
    headers = [("a", b"\xff"), ("a", b"2")]
    place.send("orders", [(b"\xff", b"\x00"), (None, b""), (b"k", None)], headers=headers, timestamp=1_700_000_000_123)
    with Drive(place, ["orders"], format="bytes").begin() as drive:
        drive.catch_up()
    written(place, *drive.batches, topic=f"{place.prefix}copy")
    one, other = place.read("orders"), place.read("copy")
    assert [tuple(o)[2:] for o in other] == [tuple(o)[2:] for o in one]
    assert len(other) == 3


def test_a_large_share_is_staged_in_a_topic(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "INLINE_BYTES", 10_000)
    monkeypatch.setattr(stage, "PART_BYTES", 50_000)
    place.make("orders", 2)
    with contextlib.closing(place.writer()) as task:
        staged = task.stage([rows("orders", range(20_000)), rows("orders", range(20_000, 20_003))])
    parts = staged.detail.parts
    assert len(parts) > 5
    assert sum(1 for part in parts if part.data) <= 1
    assert place.read("orders") == []
    with contextlib.closing(place.writer()) as driver:
        driver.finish([staged], ME, {"0": 1})
    found = [one.document["id"] for one in place.read("orders")]
    assert sorted(found) == list(range(20_003))


def test_a_batch_that_was_cut_off_leaves_nothing(place: Place) -> None:
    """As a kill leaves it: records are sent, the transaction stands open.  The next run ends it."""
    place.make("orders", 1)
    written(place, rows("orders", [1]))
    with contextlib.closing(place.writer()) as writer:
        writer.claim(ME)
        transactions: Any = writer._transactions
        transactions._producer.begin_transaction()
        transactions._producer.produce(f"{place.prefix}orders", b"{}", b"9")
        transactions._producer.flush(30)
        assert len(place.read("orders", committed=False)) == 2
        with contextlib.closing(place.writer()) as other:
            kept = other.claim(ME._replace(epoch=2))
            assert kept is not None
            assert kept["offsets"] == {"0": 1}
            other.finish([other.stage([rows("orders", [2])])], ME._replace(epoch=2), {"0": 2})
    assert [one.document["id"] for one in place.read("orders")] == [1, 2]


def test_two_processes_of_one_run_take_turns(place: Place) -> None:
    """The driver, and a task that delivers what failed once more."""
    place.make("orders", 1)
    with contextlib.closing(place.writer()) as driver, contextlib.closing(place.writer()) as task:
        for n, writer in enumerate([driver, task, driver, driver, task]):
            staged = [writer.stage([rows("orders", [n])])]
            writer.finish(staged, ME, {"0": n + 1})
            writer.finish(staged, ME, {"0": n + 1})
    assert [one.document["id"] for one in place.read("orders")] == list(range(5))


def test_a_batch_that_takes_too_long_is_not_taken_for_another_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers abort its transaction and fence its producer, as they do when another one begins."""
    topic = place.make("orders", 1)

    def ends() -> set[int]:
        """Where readers of committed and of all records are at the end: the same once no transaction is open."""
        last = {TopicPartition(topic, 0): OffsetSpec.latest()}
        levels = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        asked = [place.admin.list_offsets(last, isolation_level=level) for level in levels]
        return {future.result().offset for one in asked for future in one.values()}

    def slowly(batches: Any, until: Callable[[], bool]) -> Iterator[Any]:
        for n, one in enumerate(batches):
            yield one
            if not n:
                transactions: Any = writer._transactions
                transactions._producer.flush(PATIENCE)
                place.wait(until)

    records_of = sink.records_of
    monkeypatch.setattr(sink, "records_of", lambda *given: slowly(records_of(*given), lambda: len(ends()) == 1))
    with contextlib.closing(place.writer(transaction_seconds=1)) as writer:
        staged = [writer.stage([rows("orders", [n])]) for n in range(2)]
        with pytest.raises(Unavailable, match=r"took more than 1 s, .* a larger transaction_seconds"):
            writer.finish(staged, ME, {"0": 1})
        monkeypatch.setattr(sink, "records_of", records_of)
        writer.finish(staged, ME, {"0": 1})
    assert [one.document["id"] for one in place.read("orders")] == [0, 1]


def test_topics_are_made_and_missed(place: Place) -> None:
    written(place, rows("orders", [1]), create=True, partitions=3)
    assert len(place.admin.list_topics(timeout=10).topics[f"{place.prefix}orders"].partitions) == 3
    with contextlib.closing(place.writer(create=True)) as writer:
        assert writer.lost(ME) == []
        place.delete("orders")
        assert writer.lost(ME) == [f"the topic {place.prefix}orders"]
        with pytest.raises(NotReady, match=r"orders is gone.*tailrace offset delete pipeline writer"):
            writer.finish([writer.stage([rows("orders", [2])])], ME, {"0": 2})
        place.make("orders", 1)
        assert writer.lost(ME) == [f"the topic {place.prefix}orders"]
        writer.forget(ME)
        assert writer.lost(ME) == []
        writer.finish([writer.stage([rows("orders", [2])])], ME, {"0": 2})
    assert [one.document["id"] for one in place.read("orders")] == [2]


def test_a_record_that_is_too_large_is_named_and_nothing_of_its_batch_is_there(place: Place) -> None:
    place.make("orders", 1, max_message_bytes="20000")
    with contextlib.closing(place.writer(compression="none")) as writer:
        staged = writer.stage([rows("orders", [1]), rows("orders", [2], text="x" * 50_000)])
        with pytest.raises(Rejected, match=r"raise max.message.bytes of the topic") as caught:
            writer.finish([staged], ME, {"0": 2})
        assert caught.value.namespace.endswith("orders")
        writer.finish([writer.stage([rows("orders", [1])])], ME, {"0": 1})
    assert [one.document["id"] for one in place.read("orders")] == [1]


def test_the_state_is_one_compacted_topic(place: Place) -> None:
    place.make("orders", 1)
    for n in range(3):
        written(place, rows("orders", [n]), offset=n + 1)
    (name,) = [t for t in place.admin.list_topics(timeout=10).topics if "state" in t and place.prefix in t]
    assert name == f"__{place.prefix}state.offsets.pipeline.writer"
    state = Place(place.brokers, "")
    last: Mapping[bytes | None, Any] = {one.key: one.document for one in state.read(name)}
    assert last[b"offsets"] == {"epoch": 1, "offsets": {"0": 3}, "claimed": False}
    assert last[f"topic:{place.prefix}orders".encode()]["namespaces"] == ["orders"]


def test_a_plain_producer_of_the_same_topic_is_not_shut_out(place: Place) -> None:
    place.make("orders", 1)
    with contextlib.closing(place.writer()) as writer:
        writer.claim(ME)
        other = Producer({"bootstrap.servers": place.brokers, "log_level": 0})
        other.produce(f"{place.prefix}orders", b'{"id":5}', b"5")
        assert other.flush(30) == 0
        writer.finish([writer.stage([rows("orders", [6])])], ME, {"0": 1})
    assert [one.document["id"] for one in place.read("orders")] == [5, 6]
