"""Producers in asyncio: the same guarantees, awaited."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest

from tailrace.errors import (
    BadRecord,
    BadSetting,
    Broken,
    Closed,
    TooLarge,
    Unavailable,
    UnknownPartition,
)
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.log.write.async_producer import AsyncProducer
from tailrace.log.write.group_commit import GroupSettings
from tailrace.log.write.linger import Linger
from tailrace.storage.calls import Store
from tailrace.testing import Faults, SimulatedObjects, SimulatedTable
from tests.log.homes import HERE, homes, orders, run

home = homes(HERE)
topic = orders(4)


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
        async with topic.aio.producer(linger=60) as out:
            await asyncio.gather(*(out.send(b"k%d" % n, b"v") for n in range(50)))
            began = time.monotonic()
            await out.flush()
            assert time.monotonic() - began < 30  # a flush does not wait for company

    before = topic.store.run(topic.log.head()).appends
    run(main)
    assert topic.store.run(topic.log.head()).appends == before + 1


def test_a_lone_record_lingers_no_longer_than_told(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer(linger=0.1) as out:
            began = time.monotonic()
            await (await out.send(b"k", b"v"))
            assert 0.08 < time.monotonic() - began < 5

    run(main)


@pytest.mark.parametrize("many", [False, True])
def test_what_somebody_waits_for_lingers_for_the_shortest_only(topic: Topic, many: bool):
    async def main() -> None:
        linger = Linger(0.1, 30.0)
        async with AsyncProducer(topic.store, topic.log, topic.described, GroupSettings(linger)) as out:
            linger.seconds = 30.0
            ack = await (out.send_batch([(b"k", b"v")]) if many else out.send(b"k", b"v"))
            await asyncio.sleep(0.3)
            assert not ack.done(), "nobody waits"
            await asyncio.wait_for(ack, 10)

    run(main)


def test_a_producer_holds_no_more_than_told(topic: Topic):
    async def main() -> None:
        async with topic.aio.producer(max_bytes=2000) as out:
            for _ in range(200):
                await out.send(b"k", b"x" * 500)
                assert out._group.outstanding <= 2600

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
