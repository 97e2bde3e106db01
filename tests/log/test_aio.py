"""Topics in asyncio: the same guarantees, awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import (
    AlreadyThere,
    BadInput,
    BadRecord,
    BadSetting,
    Broken,
    Closed,
    Fenced,
    TooLarge,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from tailrace.home import Home
from tailrace.log import group as groups
from tailrace.log import watch
from tailrace.log.aioconsumer import AsyncConsumer
from tailrace.log.topic import Topic
from tailrace.storage import calls
from tailrace.storage.calls import Store
from tailrace.testing import Faults, SimulatedObjects, SimulatedTable
from tests.log.homes import HERE, fill, group_of, opened, positions

TTL = 0.5


@pytest.fixture(params=HERE)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with opened(request, tmp_path) as home:
        yield home


@pytest.fixture
def topic(home: Home) -> Topic:
    return home.topic("orders", partitions=4)


async def until(true: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run a test's coroutine; no task may be left behind."""

    async def whole() -> Any:
        result = await main()
        await asyncio.sleep(0.02)
        left = [t.get_name() for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        assert not left, left
        return result

    return asyncio.run(whole())


# -- producing
def test_an_acknowledgement_is_the_offset(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer() as out:
            acks = [await out.send(b"k", b"%d" % n, headers={"n": b"1"}, timestamp=5) for n in range(100)]
            assert [await ack for ack in acks] == list(range(100))
            assert acks[0].done()
            assert len({ack.partition for ack in acks}) == 1

    run(main)
    records = list(topic.records())
    assert [r.value for r in records] == [b"%d" % n for n in range(100)]
    assert records[0].headers == (("n", b"1"),)
    assert records[0].timestamp == 5


def test_many_at_once(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer() as out:
            ack = await out.send_batch(pa.table({"value": [b"%d" % n for n in range(1000)]}), partition=2)
            assert await ack == [(2, 0, 1000)]
            assert ack.done()
            assert await (await out.send_batch([(b"k", b"v")], partition=2)) == [(2, 1000, 1)]

    run(main)
    assert topic.ends()[2] == (0, 1001)


def test_flush_and_close_make_durable(topic: Topic):
    async def main() -> None:
        out = topic.aio.producer(linger=60)
        await out.send(b"k", b"1")
        assert sum(end for _, end in topic.ends().values()) == 0
        await out.flush()
        assert sum(end for _, end in topic.ends().values()) == 1
        await out.send(b"k", b"2")
        await out.close()
        assert sum(end for _, end in topic.ends().values()) == 2
        await out.close()
        with pytest.raises(Closed, match="closed"):
            await out.send(b"k", b"3")

    run(main)


def test_records_that_come_together_are_committed_together(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer(linger=0.2) as out:
            await asyncio.gather(*(out.send(b"k%d" % n, b"v") for n in range(50)))
            began = time.monotonic()
            await out.flush()
            assert time.monotonic() - began < 0.15  # a flush does not wait for company

    before = topic.store.run(topic.log.head()).k
    run(main)
    assert topic.store.run(topic.log.head()).k == before + 1


def test_a_lone_record_lingers_no_longer_than_told(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer(linger=0.1) as out:
            began = time.monotonic()
            await (await out.send(b"k", b"v"))
            assert 0.08 < time.monotonic() - began < 5

    run(main)


def test_a_producer_holds_no_more_than_told(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer(max_bytes=2000) as out:
            for _ in range(200):
                await out.send(b"k", b"x" * 500)
                assert out._outstanding <= 2600

    run(main)
    assert sum(end for _, end in topic.ends().values()) == 200


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (lambda out: out.send("text", b""), BadRecord),
        (lambda out: out.send(b"", b"x" * 100), TooLarge),
        (lambda out: out.send(b"", b"", partition=9), UnknownPartition),
        (lambda out: out.send_batch(pa.table({"wert": [b""]})), BadRecord),
    ],
)
def test_what_cannot_be_stored_is_refused_and_the_rest_goes_on(home: Home, send, error: type[Exception]):
    small = home.topic("small", partitions=2, max_record_bytes=50)

    async def main() -> None:
        async with small.aio.producer() as out:
            with pytest.raises(error):
                await send(out)
            assert await (await out.send(b"k", b"v")) == 0

    run(main)


def faulty(**probability: float) -> Topic:
    table = SimulatedTable(faults=Faults(1, **probability))
    home = Home("memory://", Store(SimulatedTable(), SimulatedObjects()))
    topic = home.topic("orders", partitions=2)
    table.items, table._ranges, table._bounds = (
        topic.store.table.items,
        topic.store.table._ranges,
        topic.store.table._bounds,
    )
    topic.store.table = table
    return topic


def test_answers_that_are_lost_cost_no_record():
    topic = faulty(landed=0.2, lost=0.1, late=0.1, throttled=0.1)

    async def main() -> None:
        async with topic.aio.producer() as out:
            for n in range(40):
                assert await (await out.send(b"k", b"%d" % n)) == n

    run(main)
    topic.store.table.faults = None
    assert [r.value for r in topic.records()] == [b"%d" % n for n in range(40)]


def test_a_failed_commit_fails_what_was_sent_and_the_producer_goes_on(topic: Topic):
    write, failing = topic.store.table.write, [True]

    def fails(*actions):
        if failing:
            raise Unavailable("away")
        return write(*actions)

    topic.store.clock = iter(range(0, 10**9, 100)).__next__  # patience runs out at once
    topic.store.table.write = fails

    async def main() -> None:
        out = topic.aio.producer()
        acks = [await out.send(b"k", b"%d" % n) for n in range(3)]
        for ack in acks:
            with pytest.raises(Unavailable):
                await ack
        failing.clear()
        assert await (await out.send(b"k", b"again")) == 0
        failing.append(True)
        await out.send(b"k", b"last")
        with pytest.raises(Unavailable):
            await out.close()

    run(main)
    topic.store.table.write = write


def test_a_producer_whose_storage_is_broken_closes(topic: Topic):
    write = topic.store.table.write

    def broken(*actions):
        raise Broken("EIO on fsync")

    topic.store.table.write = broken

    async def main() -> None:
        async with topic.aio.producer() as out:
            ack = await out.send(b"k", b"1")
            with pytest.raises(Broken):
                await ack
            with pytest.raises(Closed, match="EIO"):
                await out.send(b"k", b"2")

    run(main)
    topic.store.table.write = write


@pytest.mark.parametrize("settings", [{"linger": -1}, {"max_bytes": 0}])
def test_bad_settings_of_a_producer(topic: Topic, settings):
    with pytest.raises(BadSetting):
        topic.aio.producer(**settings)


# -- reading
def test_reading_gives_what_blocking_reading_gives(topic: Topic):
    fill(topic, 40)

    async def main() -> None:
        batches = [batch async for batch in topic.aio.read(max_bytes=1)]
        assert batches == list(topic.read(max_bytes=1))
        assert [r async for r in topic.aio.records(2, 3)] == list(topic.records(2, 3))
        with pytest.raises(UnknownPartition):
            [batch async for batch in topic.aio.read(9)]
        with pytest.raises(BadInput):
            [batch async for batch in topic.aio.read(start="middle")]

    run(main)


# -- consuming
def test_everything_is_handed_out_in_order_per_partition(topic: Topic):
    fill(topic, 40)
    seen: dict[int, list[int]] = {}

    async def main() -> None:
        async with topic.aio.consumer("billing") as consumer:
            async for record in consumer:
                seen.setdefault(record.partition, []).append(record.offset)
                if consumer.caught_up:
                    await consumer.commit()
                    assert (await consumer.lag()).records == 0
                    break

    run(main)
    assert seen == {q: list(range(10)) for q in range(4)}
    assert positions(topic) == dict.fromkeys(range(4), 10)


def test_it_follows_what_threads_and_tasks_append(topic: Topic):
    async def main() -> None:
        async with topic.aio.consumer("billing") as consumer, topic.aio.producer() as out:
            records = aiter(consumer)
            for n in range(3):
                threading.Timer(0.05, fill, (topic, 1, 2 * n)).start()
                assert (await asyncio.wait_for(anext(records), 5)).value == b"%d" % (2 * n)
                await out.send(b"k", b"async")
                assert (await asyncio.wait_for(anext(records), 5)).value == b"async"
            await records.aclose()

    run(main)


def test_it_is_woken_by_an_append_and_does_not_wait_for_its_next_look(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch, "SHORTEST", 60.0)
    topic = tailrace.open("memory://").topic("orders", partitions=4)

    async def main() -> None:
        async with topic.aio.consumer("billing", max_seconds=10, ttl=60) as consumer:
            await until(lambda: consumer.caught_up)
            threading.Timer(0.1, fill, (topic, 1)).start()
            records = aiter(consumer)
            assert (await anext(records)).value == b"0"
            await records.aclose()

    run(main)


def test_closing_waits_for_what_is_under_way(topic: Topic):
    ended = []

    async def main() -> None:
        async with topic.aio.consumer("billing", ttl=0.1) as consumer:
            keep = consumer._inbox.keep

            def slow():
                result = yield from keep()
                for _ in range(5):
                    yield from calls.pause(5)
                ended.append(topic.store.run(groups.members(group_of(topic))).keys())
                return result

            consumer._inbox.keep = slow
            await asyncio.sleep(0.2)
        assert ended
        assert all(ended), "it left the group while it was still being kept"

    run(main)


def test_batches(topic: Topic):
    fill(topic, 8)

    async def main() -> None:
        rows = 0
        async with topic.aio.consumer("billing") as consumer:
            async for batch in consumer.batches():
                rows += batch.num_rows
                if rows == 8:
                    break
        assert rows == 8

    run(main)


def test_leaving_the_loop_closes_a_consumer_without_with(topic: Topic):
    fill(topic, 4)

    async def main() -> None:
        consumer = topic.aio.consumer("billing")
        async for _ in consumer:
            break
        await until(lambda: not topic.store.run(groups.members(group_of(topic))))
        with pytest.raises(Closed):
            await anext(aiter(consumer))

    run(main)


def test_a_loop_ends_after_max_seconds(topic: Topic):
    fill(topic, 4)

    async def main() -> None:
        async with topic.aio.consumer("billing", max_seconds=0.3, commit_interval=0.05) as consumer:
            assert len([record async for record in consumer]) == 4

    run(main)
    assert positions(topic) == dict.fromkeys(range(4), 1)


async def work(consumer: AsyncConsumer, handled: list[tuple[int, int]]) -> None:
    async for record in consumer:
        await asyncio.sleep(0.001)
        handled.append((record.partition, record.offset))


def test_members_in_tasks_and_in_threads_share_a_topic(topic: Topic):
    one: list[tuple[int, int]] = []
    two: list[tuple[int, int]] = []
    three: list[tuple[int, int]] = []

    async def main() -> None:
        settings = {"ttl": TTL, "commit_interval": 0.05}
        async with topic.aio.consumer("billing", **settings) as a, topic.aio.consumer("billing", **settings) as b:
            tasks = [asyncio.create_task(work(a, one)), asyncio.create_task(work(b, two))]
            await until(lambda: len(a.partitions) == len(b.partitions) == 2)
            fill(topic, 200)
            with topic.consumer("billing", **settings) as c:
                thread = threading.Thread(target=lambda: three.extend((r.partition, r.offset) for r in c))
                thread.start()
                await until(lambda: len(c.partitions) == 1)
                fill(topic, 200, 200)
                await until(lambda: sum(positions(topic).values()) == 400)
                await asyncio.to_thread(c.close)
                thread.join()
            await a.close()
            await b.close()
            await asyncio.gather(*tasks)

    run(main)
    assert len(one + two + three) == len({*one, *two, *three}) == 400
    assert all((one, two, three))


def test_a_busy_event_loop_does_not_cost_the_partitions(topic: Topic):
    """Beats come from a thread."""

    async def main() -> None:
        async with topic.aio.consumer("billing", ttl=TTL) as consumer:
            await until(lambda: len(consumer.partitions) == 4)
            with topic.consumer("billing", ttl=TTL) as other:
                time.sleep(3 * TTL)
                assert other.partitions == []

    run(main)


def test_a_second_member_of_the_same_name_is_refused(topic: Topic):
    async def main() -> None:
        async with topic.aio.consumer("billing", member="ann", ttl=TTL):
            with pytest.raises(AlreadyThere):
                async with topic.aio.consumer("billing", member="ann", ttl=TTL):
                    pass

    run(main)


def test_a_past_owner_is_fenced(topic: Topic):
    from tailrace.coordination import lease

    fill(topic, 8)

    async def main() -> None:
        async with topic.aio.consumer("billing", ttl=60, auto_commit=False) as consumer:
            async for record in consumer:
                key = group_of(topic).shard(record.partition)
                topic.store.run(lease.take(key, 7, topic.store.table.get(key)))
                with pytest.raises(Fenced):
                    await consumer.commit()
                break

    run(main)


def test_a_deleted_topic_is_an_error(home: Home, topic: Topic):
    async def main() -> None:
        async with topic.aio.consumer("billing") as consumer:
            home.delete_topic("orders")
            with pytest.raises(UnknownTopic):
                await anext(aiter(consumer))

    run(main)
