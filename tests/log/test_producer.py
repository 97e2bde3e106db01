"""Producers: order, group commit, back-pressure, failure in the middle, and many threads at once."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    BadRecord,
    BadSetting,
    Broken,
    Closed,
    DiskFull,
    OutcomeUnknown,
    TailraceError,
    Throttled,
    TimedOut,
    TooLarge,
    Unavailable,
    UnknownPartition,
)
from tailrace.home import Home
from tailrace.log.batch import Ack, Batch
from tailrace.log.producer import CHUNK_BYTES, Producer
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
from tailrace.storage.tables import Action, Update
from tailrace.testing import ManualClock, SimulatedObjects, SimulatedTable
from tests.log.driving import TABLES


class Watched(SimulatedTable):
    """A table whose appends can be held up or made to fail."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.gate = threading.Event()
        self.gate.set()
        self.errors: list[Exception | None] = []
        self.appends = 0
        self.late: list[Callable[[], object]] = []

    def write(self, *actions: Action) -> Any:
        if isinstance(actions[0], Update) and actions[0].key.p.startswith("$Log-"):
            self.appends += 1
            assert self.gate.wait(20), "the test forgot the gate"
            error = self.errors.pop(0) if self.errors else None
            if isinstance(error, TimedOut):
                self.late.append(lambda: super(Watched, self).write(*actions))
            if error is not None:
                raise error
        return super().write(*actions)


def watched(kept: str = "joined", partitions: int = 2) -> tuple[Topic, Watched]:
    """A topic on such a table; a pause moves a clock of its own."""
    table, clock = Watched(**TABLES[kept]), ManualClock()
    home = Home("memory:", Store(table, SimulatedObjects(), clock.monotonic, clock.move))
    return home.create_topic("t", partitions), table


@contextmanager
def held(table: Watched) -> Iterator[None]:
    """No append gets through for the length of a block."""
    table.gate.clear()
    try:
        yield
    finally:
        table.gate.set()


def eventually(true: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)


def values(topic: Topic, partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in topic.records(partition)]


# --- what is acknowledged
@pytest.mark.parametrize("kept", TABLES)
def test_an_acknowledgement_is_the_offset_at_which_the_record_is(kept: str) -> None:
    topic, _ = watched(kept, 4)
    with topic.producer() as out:
        acks = [(n, out.send(b"key-%d" % (n % 50), b"%d" % n)) for n in range(3000)]
        acks += [(n, out.send(None, b"%d" % n)) for n in range(3000, 3050)]
    found = {(r.partition, r.offset): r.value for r in topic.records()}
    assert len(found) == 3050
    for n, ack in acks:
        assert ack.done()
        assert found[ack.partition, ack.result()] == b"%d" % n


def test_everything_that_a_record_has_comes_back() -> None:
    topic, _ = watched()
    with topic.producer() as out:
        out.send(b"k", None, timestamp=5, headers={"a": b"1"}, mode=1, op=2, partition=1)
        out.send()
    (one,) = topic.records(1)
    assert one[:6] == ("t", 1, 0, 5, b"k", None)
    assert one.headers == (("a", b"1"),)
    assert (one.mode, one.op) == (1, 2)
    (two,) = topic.records(0)
    assert (two.key, two.value, two.headers) == (None, None, ())
    assert abs(two.timestamp - time.time() * 1000) < 60_000


def test_batches_of_arrow_and_pairs() -> None:
    topic, _ = watched(partitions=3)
    with topic.producer() as out:
        ack = out.send_batch(pa.table({"key": [b"a", b"b", b"c"] * 10, "value": [b"%d" % n for n in range(30)]}))
        spans = ack.result(10)
        pairs = out.send_batch([(b"a", b"x"), (None, b"y")])
        out.send_batch(pa.record_batch({"value": [b"z"]}), partition=2).result(10)
        assert out.send_batch([]).result() == []
    assert sum(span.records for span in spans) == 30
    found = {(r.partition, r.offset): r.value for r in topic.records()}
    for partition, offset, records in spans:
        assert all((partition, offset + n) in found for n in range(records))
    assert sum(span.records for span in pairs.result()) == 2
    assert b"z" in values(topic, 2)


def test_a_commit_under_way_is_joined_by_nobody_and_the_next_takes_all() -> None:
    topic, table = watched()
    with topic.producer() as out:
        with held(table):
            out.send(b"a", b"1")
            eventually(lambda: table.appends)
            for n in range(100):
                out.send(b"a", b"%d" % n)
        out.flush()
        assert table.appends == 2


def test_a_full_chunk_does_not_wait() -> None:
    topic, table = watched("objects")
    with topic.producer(linger=60) as out:
        out.send(b"a", b"x" * CHUNK_BYTES)
        eventually(lambda: table.appends)


def test_lingering_is_for_company_and_not_longer() -> None:
    took = [_lingered(0.5) for _ in range(3)]
    assert min(took) > 0.49
    assert min(took) < 0.8, "the last to come do not prolong it"


def _lingered(linger: float) -> float:
    """How long the first of some records waited, while others kept coming."""
    topic, table = watched()
    with topic.producer(linger=linger) as out:
        began = time.monotonic()
        acks = [out.send(b"a", b"1")]
        while time.monotonic() < began + 0.8 * linger:
            time.sleep(0.01)
            acks.append(out.send(b"a", b"1"))
        acks[0].result(10)
        took = time.monotonic() - began
        assert table.appends == 1 or took > 2 * linger
        return took


def test_a_flush_does_not_linger() -> None:
    topic, _ = watched()
    with topic.producer(linger=60) as out:
        out.send(b"a", b"1")
        out.flush(5)
        assert values(topic) == [b"1"]
        out.send(b"a", b"2")
    assert values(topic) == [b"1", b"2"], "nor does a close"


def test_an_idle_producer_asks_for_nothing() -> None:
    topic, table = watched()
    with topic.producer() as out:
        out.send(b"a", b"1").result(10)
        before = dict(table.calls)
        time.sleep(0.3)
        assert dict(table.calls) == before


# --- failure
def test_a_failure_in_the_middle_fails_everything_behind_it() -> None:
    topic, table = watched("objects", 1)
    with held(table):
        out = topic.producer()
        acks = [out.send(b"a", b"%d" % n) for n in range(1)]
        eventually(lambda: table.appends == 1)
        big = [out.send(b"a", b"%d" % n + b"x" * CHUNK_BYTES) for n in range(1, 4)]
        acks += [*big, out.send(b"a", b"4")]
        table.errors = [None, BadRecord("made up")]
    outcomes = [_outcome(ack) for ack in acks]
    assert outcomes == [0, BadRecord, BadRecord, BadRecord, BadRecord]
    assert out.send(b"a", b"5").result(10) == 1, "it goes on"
    out.close()
    assert values(topic) == [b"0", b"5"], "nothing reappears"


def _outcome(ack: Ack) -> object:
    try:
        return ack.result(10)
    except TailraceError as error:
        return type(error)


def test_flush_and_close_raise_what_nobody_has_been_told() -> None:
    """Fire and forget: a record that was lost in the background is not passed over in silence."""
    topic, table = watched()
    out = topic.producer()
    table.errors = [BadRecord("lost one")]
    ack = out.send(b"a", b"1")
    eventually(ack.done)
    with pytest.raises(BadRecord, match="lost one"):
        out.flush()
    out.flush()
    table.errors = [BadRecord("lost two")]
    ack = out.send(b"a", b"1")
    eventually(ack.done)
    with pytest.raises(BadRecord, match="lost two"):
        out.close()


def test_a_failure_that_each_acknowledgement_has_told_is_said() -> None:
    topic, table = watched()
    table.errors = [BadRecord("lost one")]
    with topic.producer() as out:
        with held(table):
            acks = [out.send(b"a", b"1"), out.send(b"b", b"2")]
            batch = out.send_batch([(b"a", b"3"), (b"b", b"4")])
        for ack in (*acks, batch):
            with pytest.raises(BadRecord):
                ack.result(10)
            with pytest.raises(BadRecord):
                ack.result(10)
    table.errors = [BadRecord("lost two")]
    out = topic.producer()
    with held(table):
        asked, _forgotten = out.send(b"a", b"1"), out.send(b"b", b"2")
    with pytest.raises(BadRecord):
        asked.result(10)
    with pytest.raises(BadRecord, match="lost two"):
        out.close()


def test_close_raises_a_failure_that_happens_while_it_waits() -> None:
    topic, table = watched()
    out = topic.producer()
    table.errors = [BadRecord("lost")]
    with pytest.raises(BadRecord, match="lost"), out:
        out.send(b"a", b"1")


@pytest.mark.parametrize("error", [OutcomeUnknown("no idea"), Broken("EIO")])
def test_what_may_have_happened_closes_the_producer(error: Exception) -> None:
    topic, table = watched()
    out = topic.producer()
    table.errors = [error]
    with pytest.raises(type(error)):
        out.send(b"a", b"1").result(10)
    with pytest.raises(Closed, match="this producer of 't' has failed: "):
        out.send(b"a", b"2")
    with pytest.raises(Closed):
        out.send_batch([(b"a", b"2")])
    out.close()
    with topic.producer() as another:
        another.send(b"a", b"3").result(10)
    assert values(topic) == [b"3"]


def test_a_chunk_in_doubt_is_not_followed_by_another_on_its_page() -> None:
    """An answer that never comes, reads that fail: the producer must not go on, or its order could break."""
    topic, table = watched()
    out = topic.producer()
    out.send(b"a", b"0").result(10)
    table.errors = [TimedOut("sent, no answer")]
    reads = table.get
    table.get = lambda key: (_ for _ in ()).throw(Unavailable("no route"))  # type: ignore[method-assign]
    first = out.send(b"a", b"1")
    with pytest.raises(OutcomeUnknown):
        first.result(10)
    table.get = reads  # type: ignore[method-assign]
    with pytest.raises(Closed):
        out.send(b"a", b"2")
    table.late.pop()()
    out.close()
    assert values(topic) == [b"0", b"1"]


def test_a_full_disk_is_no_reason_to_stop() -> None:
    topic, table = watched()
    out = topic.producer()
    table.errors = [DiskFull("no space left")]
    with pytest.raises(DiskFull):
        out.send(b"a", b"1").result(10)
    assert out.send(b"a", b"2").result(10) == 0
    out.close()


def test_a_table_that_is_throttled_for_half_a_minute() -> None:
    topic, table = watched()
    clock = topic.store.clock
    until = clock() + 30

    def write(*actions: Action) -> Any:
        if clock() < until:
            raise Throttled("too many requests")
        return SimulatedTable.write(table, *actions)

    table.write = write  # type: ignore[method-assign]
    with topic.producer() as out:
        acks = [out.send(b"a", b"%d" % n) for n in range(10)]
        assert [ack.result(20) for ack in acks] == list(range(10))
        out.send(b"a", b"10").result(10)
    assert clock() >= until
    assert values(topic) == [b"%d" % n for n in range(11)]


def test_a_table_that_is_throttled_for_too_long() -> None:
    topic, table = watched()
    out = topic.producer()
    table.errors = [Throttled("too many requests")] * 10_000
    with pytest.raises(Unavailable, match="nothing of it is acknowledged, the same call can be made again"):
        out.send(b"a", b"1").result(20)
    table.errors = []
    assert out.send(b"a", b"2").result(10) == 0
    out.close()


def test_a_failed_put_is_told_and_leaves_no_record() -> None:
    topic, _ = watched("objects")
    objects: Any = topic.store.objects
    put, objects.put = objects.put, lambda name, parts: (_ for _ in ()).throw(DiskFull("no space left"))
    out = topic.producer()
    with pytest.raises(DiskFull):
        out.send(b"a", b"1").result(10)
    objects.put = put
    assert out.send(b"a", b"2").result(10) == 0
    out.close()
    assert values(topic) == [b"2"]


def test_trouble_that_nobody_thought_of_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, _ = watched("objects")
    out = topic.producer()
    monkeypatch.setattr(out._putters, "submit", lambda *a: (_ for _ in ()).throw(RuntimeError("shutting down")))
    with pytest.raises(RuntimeError, match="shutting down"):
        out.send(b"a", b"1").result(10)
    out.close()


def test_an_error_told_to_many_does_not_grow() -> None:
    topic, table = watched()
    out = topic.producer()
    table.errors = [BadRecord("lost")]
    with held(table):
        acks = [out.send(b"a", b"") for _ in range(50)]
    lengths = []
    for ack in acks:
        with pytest.raises(BadRecord) as caught:
            ack.result(10)
        lengths.append(len(caught.traceback))
    assert lengths[0] == lengths[-1]
    out.close()


# --- bad input
def test_bad_records_are_refused_and_the_rest_goes_on() -> None:
    home = Home("memory:", Store(SimulatedTable(), SimulatedObjects()))
    topic = home.create_topic("t", 2, max_record_bytes=100)
    with topic.producer() as out:
        first = out.send(b"a", b"1")
        for error, says, sent in [
            (BadRecord, r"key\.encode", lambda: out.send("a")),  # type: ignore[arg-type]
            (TooLarge, "101 bytes, over the topic's max_record_bytes of 100", lambda: out.send(b"a", b"x" * 100)),
            (UnknownPartition, "no partition 2; the topic has 0 to 1", lambda: out.send(b"a", partition=2)),
            (BadRecord, "outside 1970 to 9999", lambda: out.send(b"a", timestamp=-1)),
            (BadRecord, "headers", lambda: out.send(b"a", headers={"a": 1})),  # type: ignore[dict-item]
            (BadRecord, "mode", lambda: out.send(b"a", mode=3)),
            (BadRecord, "pairs", lambda: out.send_batch([b"abc"])),  # type: ignore[list-item]
            (UnknownPartition, "no partition 9", lambda: out.send_batch([(b"a", b"b")], partition=9)),
        ]:
            with pytest.raises(error, match=says):
                sent()
        last = out.send(b"a", b"2")
    assert (first.result(), last.result()) == (0, 1)
    assert values(topic) == [b"1", b"2"]


def test_a_batch_with_a_bad_record_anywhere_is_refused_whole() -> None:
    topic, _ = watched("objects", 1)
    topic.configure(max_record_bytes=2 * CHUNK_BYTES)
    with topic.producer() as out:
        good = [(b"k", b"x" * (CHUNK_BYTES // 2))] * 6
        with pytest.raises(TooLarge):
            out.send_batch([*good, (b"k", b"x" * (2 * CHUNK_BYTES))])
    assert values(topic) == []


def test_a_closed_producer() -> None:
    topic, _ = watched()
    out = topic.producer()
    out.send(b"a", b"1")
    out.close()
    out.close()
    with pytest.raises(Closed, match="this producer of 't' is closed"):
        out.send(b"a", b"2")
    with pytest.raises(Closed, match="this producer of 't' is closed"):
        out.send_batch([(b"a", b"2")])
    out.flush()
    assert values(topic) == [b"1"]


@pytest.mark.parametrize("bad", [{"max_bytes": 0}, {"linger": -1}])
def test_bad_settings(bad: dict[str, Any]) -> None:
    topic, _ = watched()
    with pytest.raises(BadSetting, match="max_bytes is at least 1 and its linger at least 0"):
        topic.producer(**bad)


def test_an_acknowledgement_that_is_not_there_yet() -> None:
    topic, table = watched()
    with topic.producer() as out, held(table):
        ack = out.send(b"a", b"1")
        assert not ack.done()
        assert "pending" in repr(ack)
        with pytest.raises(TimedOut, match=r"'t' are not yet acknowledged after 0.01 s; they still may be"):
            ack.result(0.01)
        with pytest.raises(TimedOut):
            out.flush(0.01)
    assert ack.result() == 0
    assert "done" in repr(ack)


def test_a_flush_waits_no_longer_than_it_was_told() -> None:
    topic, table = watched("objects")
    with topic.producer() as out, held(table):
        for _ in range(5):
            out.send(b"a", b"x" * CHUNK_BYTES)
        began = time.monotonic()
        with pytest.raises(TimedOut):
            out.flush(0.2)
        assert time.monotonic() - began < 0.9


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


def _size(batch: Batch) -> int:
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
