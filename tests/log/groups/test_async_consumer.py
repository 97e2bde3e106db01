"""Consumers in asyncio: the same guarantees, awaited, beside those in threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import tailrace
from tailrace.coordination import watch
from tailrace.errors import (
    AlreadyThere,
    Closed,
    Fenced,
    UnknownTopic,
)
from tailrace.home import Home
from tailrace.log.groups import group as groups
from tailrace.log.groups.async_consumer import AsyncConsumer
from tailrace.log.topic import Topic
from tailrace.storage import calls
from tests.log.homes import HERE, fill, group_of, homes, orders, positions, run

TTL = 0.5


home = homes(HERE)
topic = orders(4)


async def until(true: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


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
    monkeypatch.setattr(watch, "MIN_POLL_SECONDS", 60.0)
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
