"""Topics: what one reads is what is there, as Arrow or record by record."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pytest

from tailrace.errors import BadInput, Damaged, OutOfRange, UnknownPartition
from tailrace.home import Home
from tailrace.log.read.fetched import Fetched
from tailrace.log.record import Record, partition_of
from tailrace.log.topic import Topic, as_records
from tailrace.log.upkeep.retention import drop_pages, raise_floor
from tailrace.log.write.attempt import roll
from tests.log.driving import TABLES, simulated_home


def made(kept: str = "joined", count: int = 20, partitions: int = 2, rolls: int = 5) -> tuple[Home, Topic]:
    home, _ = simulated_home(kept)
    topic = home.create_topic("t", partitions)
    for n in range(count):
        topic.append([(b"k%d" % n, b"%d" % n)])
        if n % rolls == rolls - 1:
            home.store.run(roll(topic.log, home.store.run(topic.log.head())))
    return home, topic


def test_what_a_topic_says_of_itself() -> None:
    _, topic = made(count=0, partitions=3)
    assert (topic.name, topic.partitions, len(topic.id)) == ("t", 3, 16)
    assert repr(topic) == "Topic('t', partitions=3)"
    assert topic.ends() == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    assert list(topic.records()) == list(topic.read()) == []


@pytest.mark.parametrize("kept", TABLES)
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_arrow_and_records_say_the_same(kept: str, max_bytes: int) -> None:
    _, topic = made(kept)
    table = pa.Table.from_batches(topic.read(max_bytes=max_bytes))
    assert table.schema.names == ["partition", "offset", "timestamp", "attributes", "key", "value"]
    rows = [(r.partition, r.offset, r.key, r.value) for r in topic.records()]
    wanted = table.select(["partition", "offset", "key", "value"]).to_pylist()
    assert sorted(tuple(row.values()) for row in wanted) == sorted(rows)
    assert len(rows) == 20
    assert all(partition_of(key, 2) == q for q, _, key, _ in rows)


def test_records_with_headers_beside_records_without() -> None:
    _, topic = made(count=0, partitions=1)
    topic.append(pa.table({"value": [b"plain"]}))
    with topic.transaction() as t:
        t.send(b"a", b"one", headers=[("h", b"1"), ("h", b"2")])
        t.send(b"a", b"two")
    found = list(topic.records())
    assert [r.headers for r in found] == [(), (("h", b"1"), ("h", b"2")), ()]
    assert all(isinstance(r, Record) for r in found)
    assert [batch.schema.names[-1] for batch in topic.read()] == ["value", "headers"]


def test_from_an_offset_in_the_middle() -> None:
    _, topic = made(partitions=1)
    assert [r.offset for r in topic.records(0, 7)] == list(range(7, 20))
    assert [r.offset for r in islice(topic.records(0, "latest"), 1)] == []
    assert [r.offset for r in topic.records(0, 20)] == [], "the end is a position"


def test_partitions_and_offsets_that_there_are_not() -> None:
    home, topic = made(partitions=2)
    for bad in (2, -1, True, "0", 1.0):
        for ask in (topic.read, topic.records, topic.fetch):
            with pytest.raises(UnknownPartition, match=r"topic 't' has no partition .*; it has 0 to 1"):
                next(iter(ask(bad)))  # type: ignore[arg-type]
        with pytest.raises(UnknownPartition):
            topic.offset_at(bad, "earliest")  # type: ignore[arg-type]
        with pytest.raises(UnknownPartition):
            topic.follow(bad)  # type: ignore[arg-type]
    floor, end = topic.ends()[0]
    with pytest.raises(OutOfRange, match=f"offset {end + 1} of partition 0 of 't' is beyond its end, {end}") as beyond:
        list(topic.read(0, end + 1))
    assert (beyond.value.floor, beyond.value.end) == (floor, end)
    home.store.run(raise_floor(topic.log, {0: 3}))
    with pytest.raises(
        OutOfRange, match="offset 2 of partition 0 of 't' was removed; the first that is kept is 3"
    ) as below:
        list(topic.read(0, 2))
    assert (below.value.floor, below.value.end) == (3, end)
    assert next(topic.fetch(0, 2, from_floor=True)).offset == 3
    assert [r.offset for r in topic.records(0)] == list(range(3, end))
    with pytest.raises(BadInput, match="a position is"):
        list(topic.read(0, "begin"))  # type: ignore[arg-type]


def test_the_floor_rises_between_asking_and_reading() -> None:
    home, topic = made("objects", partitions=1)
    reading = topic.records()
    ends, asked = topic.ends, []

    def late() -> dict[int, tuple[int, int]]:
        if not asked:
            asked.append(True)
            home.store.run(raise_floor(topic.log, {0: 6}))
            home.store.run(drop_pages(topic.log))
        return ends()

    topic.ends = late  # type: ignore[method-assign]
    assert [r.offset for r in reading] == list(range(6, 20)), "the earliest is where the floor is now"


def test_the_floor_overtakes_a_slow_reader() -> None:
    home, topic = made("objects", partitions=1)
    reading = topic.fetch(max_bytes=1)
    assert next(reading).offset == 0
    home.store.run(raise_floor(topic.log, {0: 10}))
    with pytest.raises(OutOfRange, match=r"offset 1 .* was removed"):
        next(reading)


def test_what_is_there_now_has_an_end_although_more_keeps_coming() -> None:
    _, topic = made(partitions=1, count=5)
    seen = []
    for record in topic.records():
        seen.append(record.offset)
        topic.append([(b"k", b"more")])
        assert len(seen) < 100
    assert seen == [0, 1, 2, 3, 4]


def test_opening_does_not_cost_more_for_more_partitions() -> None:
    def cost(partitions: int) -> int:
        home, topic = made(count=1, partitions=partitions)
        before = home.store.table.calls["get"]
        list(topic.records())
        return home.store.table.calls["get"] - before

    assert cost(128) == cost(1)


def test_many_threads_read_and_write_one_topic() -> None:
    _, topic = made(count=0, partitions=4)
    stop = threading.Event()

    def write(thread: int) -> int:
        n = 0
        while not stop.is_set() and n < 300:
            topic.append([(b"%d" % n, b"%d/%d" % (thread, n))])
            n += 1
        return n

    def read(_: int) -> int:
        longest = 0
        while not stop.is_set():
            records = list(topic.records())
            by_partition: dict[int, list[int]] = {}
            for record in records:
                by_partition.setdefault(record.partition, []).append(record.offset)
            assert all(offsets == list(range(len(offsets))) for offsets in by_partition.values())
            assert len(records) >= longest
            longest = len(records)
        return longest

    with ThreadPoolExecutor(8) as pool:
        reading = [pool.submit(read, n) for n in range(4)]
        wrote = sum(pool.map(write, range(4)))
        stop.set()
        assert all(job.result(20) for job in reading)
    found = [r.value for r in topic.records()]
    assert len(found) == len(set(found)) == wrote


def test_the_rest_stays_readable_beside_damage() -> None:
    home, topic = made("objects", partitions=2)
    store = home.store
    for q in (0, 1):
        first = next(topic.fetch(q)).offset
        assert first == 0
    doomed = sorted(store.objects.items)[0]
    store.objects.items[doomed] = store.objects.items[doomed][:400]
    readable, damaged = 0, list[str]()
    for q in (0, 1):
        position, end = topic.ends()[q]
        while position < end:
            try:
                for fetched in topic.fetch(q, position):
                    readable += fetched.end - fetched.offset
                    position = fetched.end
            except Damaged as error:
                damaged.append(error.where)
                position += 1
    assert (readable, damaged) == (19, [doomed])


def test_typed_rows_with_a_fifth_column_that_is_not_headers() -> None:
    """As those of a pipeline, whose last column says which fields an update left alone."""
    fetched = Fetched(
        0,
        7,
        pa.record_batch(
            {
                "timestamp": pa.array([1], pa.timestamp("ms", "UTC")),
                "attributes": pa.array([0], pa.uint8()),
                "key": [b"k"],
                "data": [{"id": 1}],
                "unset": [["name"]],
            }
        ),
    )
    (record,) = as_records("t", fetched)
    assert (record.offset, record.key, record.value, record.headers) == (7, b"k", {"id": 1}, ())


# --- without keys
@pytest.fixture
def home() -> Home:
    return simulated_home()[0]


def spread(topic: Topic) -> list[int]:
    return [end - floor for floor, end in topic.ends().values()]


def test_many_small_appends_without_keys_are_spread(home: Home) -> None:
    """Also if each is made by a process, or a handle, of its own."""
    home.topic("many", partitions=4)
    for _ in range(80):
        home.topic("many").append([(None, b"x")])
    assert min(spread(home.topic("many"))) >= 5
    topic = home.topic("one-handle", partitions=4)
    for _ in range(80):
        topic.append([(None, b"x")])
    assert spread(topic) == [20] * 4


def test_a_short_lived_producer_does_not_always_begin_with_the_same_partition(home: Home) -> None:
    home.topic("lives", partitions=4)
    for _ in range(40):
        with home.topic("lives").producer() as out:
            out.send_batch([(None, b"x"), (None, b"y")])
    assert min(spread(home.topic("lives"))) >= 2


@pytest.mark.parametrize("size", [1 << 20, 20 << 20])
def test_a_large_append_without_keys_is_spread(home: Home, size: int) -> None:
    topic = home.topic("large", partitions=4)
    spans = topic.append([(None, b"%d" % n + bytes(1000)) for n in range(size // 1000)])
    assert sum(span.records for span in spans) == size // 1000
    assert min(spread(topic)) > 0.9 * size / 1000 / 4
    for span in spans:
        found = [r.value.rstrip(b"\0") for r in topic.records(span.partition, span.offset)][: span.records]
        assert [int(value) for value in found] == [*range(int(found[0]), int(found[0]) + span.records)]


def test_a_small_batch_without_keys_stays_together(home: Home) -> None:
    topic = home.topic("small", partitions=4)
    assert len(topic.append([(None, b"x" * 100)] * 100)) == 1


def test_records_without_keys_are_spread_among_those_that_have_some(home: Home) -> None:
    topic = home.topic("mixed", partitions=4)
    topic.append([(b"a" if n % 2 else None, b"%d" % n + bytes(1000)) for n in range(1000)])
    keyed = partition_of(b"a", 4)
    assert [sum(r.key is None for r in topic.records(q)) for q in range(4)] == [125] * 4
    assert [int(r.value.rstrip(b"\0")) for r in topic.records(keyed) if r.key] == [*range(1, 1000, 2)]
