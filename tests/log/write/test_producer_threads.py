"""Producers and many threads: order, closing, room, memory."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    BadRecord,
    Closed,
)
from tailrace.log.write.acknowledgement import Ack, CommitBatch
from tailrace.log.write.producer import Producer
from tests.log.driving import TABLES
from tests.log.watched import eventually, held, values, watched


# --- many threads
def test_sixteen_threads_keep_their_order() -> None:
    topic, _ = watched(partitions=4)
    each = 500

    def send(out: Producer, thread: int) -> list[Ack]:
        acks = []
        for n in range(each):
            acks.append(out.send(b"%d" % (n % 7), b"%d/%d" % (thread, n)))
            if n % 100 == thread:
                out.flush()
        return acks

    with topic.producer() as out, ThreadPoolExecutor(16) as pool:
        all_acks = list(pool.map(lambda t: send(out, t), range(16)))
    found = {(r.partition, r.offset): r.value for r in topic.records()}
    assert len(found) == 16 * each
    for thread, acks in enumerate(all_acks):
        last = dict.fromkeys(range(4), -1)
        for n, ack in enumerate(acks):
            assert found[ack.partition, ack.result()] == b"%d/%d" % (thread, n)
            assert ack.result() > last[ack.partition]
            last[ack.partition] = ack.result()


def test_sending_flushing_and_closing_race() -> None:
    """Whatever was acknowledged is there, whatever was refused is not, and nobody hangs."""
    for _ in range(20):
        topic, _ = watched(partitions=2)
        out = topic.producer()
        sent: list[list[tuple[bytes, Ack]]] = [[] for _ in range(8)]
        start = threading.Barrier(11)

        def send(thread: int, out: Producer = out, sent: Any = sent, start: threading.Barrier = start) -> None:
            start.wait()
            with suppress(Closed):
                for n in range(200):
                    sent[thread].append((b"%d/%d" % (thread, n), out.send(b"%d" % n, b"%d/%d" % (thread, n))))

        def flush(out: Producer = out, start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(10):
                out.flush()

        def close(out: Producer = out, start: threading.Barrier = start) -> None:
            start.wait()
            time.sleep(0.001)
            out.close()
            assert not out._thread.is_alive(), "closed, and yet at work"

        with ThreadPoolExecutor(11) as pool:
            jobs = [pool.submit(send, t) for t in range(8)] + [
                pool.submit(close),
                pool.submit(close),
                pool.submit(flush),
            ]
            for job in jobs:
                job.result(20)
        there = values(topic)
        acked = [value for some in sent for value, ack in some if ack.result(10) >= 0]
        assert sorted(there) == sorted(acked)


def test_both_who_close_return_when_it_is_closed() -> None:
    topic, table = watched()
    out = topic.producer()
    with held(table), ThreadPoolExecutor(2) as pool:
        ack = out.send(b"a", b"1")
        closing = [pool.submit(out.close) for _ in range(2)]
        time.sleep(0.05)
        assert not any(job.done() for job in closing)
        table.gate.set()
        for job in closing:
            job.result(10)
        assert ack.done()


# --- back-pressure
@pytest.mark.parametrize("kept", TABLES)
def test_no_more_is_taken_than_max_bytes(kept: str) -> None:
    topic, table = watched(kept)
    limit, size = 100_000, 1000
    with held(table):
        out = topic.producer(max_bytes=limit)
        taken: list[Ack] = []
        threads = [
            threading.Thread(target=lambda: [taken.append(out.send(b"a", b"x" * size)) for _ in range(100)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: len(taken) >= limit // (size + 100))
        time.sleep(0.1)
        assert len(taken) * size <= limit + size, "one record beyond the limit at most"
    for thread in threads:
        thread.join(20)
    out.close()
    assert len(values(topic)) == 400


def test_what_is_done_makes_only_its_own_room() -> None:
    topic, table = watched()
    passes = threading.Semaphore(0)
    table.gate.wait = lambda timeout=None: passes.acquire(timeout=timeout)  # type: ignore[method-assign]
    out, taken = topic.producer(max_bytes=10_000), list[Ack]()
    sending = threading.Thread(target=lambda: [taken.append(out.send(b"a", b"x" * 1000)) for _ in range(40)])
    taken.append(out.send(b"a", b"x" * 1000))
    eventually(lambda: table.appends == 1)
    sending.start()
    for done in range(1, 4):
        eventually(lambda: sum(not ack.done() for ack in taken) >= 9)
        time.sleep(0.05)
        assert sum(not ack.done() for ack in taken) <= 10
        passes.release()
        eventually(lambda done=done: table.appends == done + 1)
    passes.release(100)
    sending.join(20)
    out.close()
    assert len(values(topic)) == 41


def test_a_record_larger_than_max_bytes_goes_alone() -> None:
    topic, _ = watched()
    with topic.producer(max_bytes=10) as out:
        for n in range(5):
            out.send(b"a", b"%d" % n * 100)
    assert len(values(topic)) == 5


def test_who_waits_for_room_does_not_wait_for_company() -> None:
    topic, _ = watched()
    began = time.monotonic()
    with topic.producer(linger=30, max_bytes=1000) as out:
        for _ in range(100):
            out.send(b"a", b"x" * 100)
    assert time.monotonic() - began < 10


def test_who_waits_for_room_is_woken_by_a_close() -> None:
    topic, table = watched()
    out = topic.producer(max_bytes=10)
    with held(table), ThreadPoolExecutor(2) as pool:
        out.send(b"a", b"x" * 100)
        waiting = pool.submit(out.send, b"a", b"y")
        time.sleep(0.05)
        closing = pool.submit(out.close)
        with pytest.raises(Closed):
            waiting.result(10)
        table.gate.set()
        closing.result(10)
    assert values(topic) == [b"x" * 100]


def test_memory_is_bounded_however_much_is_sent() -> None:
    topic, _ = watched("objects")
    objects: Any = topic.store.objects
    objects.put = lambda name, parts: None
    value = bytes(1000)
    with topic.producer(max_bytes=8 << 20) as out:
        for _ in range(20_000):
            out.send(b"a", value)
        out.flush()
        gc.collect()
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            for _ in range(60_000):
                out.send(b"a", value)
            out.flush()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 24 << 20
    assert pa.total_allocated_bytes() - before < 8 << 20


def test_acknowledgements_keep_no_records() -> None:
    topic, table = watched()
    with topic.producer() as out:
        kept = [out.send(b"a", bytes(100_000)) for _ in range(20)]
        out.flush()
        table.errors = [BadRecord("lost")]
        with held(table):
            kept.append(out.send(b"a", bytes(100_000)))
            before = table.appends
            eventually(lambda: table.appends > before)
            kept += [out.send(b"a", bytes(100_000)) for _ in range(20)]
        with pytest.raises(BadRecord):
            out.flush()
        gc.collect()
        sizes = [_size(batch) for batch in {id(ack.batch): ack.batch for ack in kept}.values()]
    assert sum(sizes) == 0


def _size(batch: CommitBatch) -> int:
    buffer = batch.buffer
    return sum(len(v or b"") for v in buffer._values) + sum(bin.size for bin in buffer.bins.values())


def test_a_home_that_was_closed_fails_its_producers(tmp_path: Any) -> None:
    import tailrace

    home = tailrace.open(tmp_path / "home")
    topic = home.topic("t", 1)
    out = topic.producer()
    out.send(b"a", b"1").result(10)
    home.close()
    with pytest.raises(Closed):
        out.send(b"a", b"2").result(10)
    out.close()
    with tailrace.open(tmp_path / "home") as again:
        assert values(again.topic("t")) == [b"1"]
