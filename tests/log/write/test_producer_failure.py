"""Producers in trouble: everything behind a failure fails, in order, and somebody is told."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import (
    BadRecord,
    Broken,
    Closed,
    DiskFull,
    OutcomeUnknown,
    TailraceError,
    Throttled,
    TimedOut,
    Unavailable,
)
from tailrace.log.write.acknowledgement import Ack
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.storage.tables import Action
from tailrace.testing import SimulatedTable
from tests.log.watched import eventually, held, values, watched


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
