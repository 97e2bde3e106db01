"""Producers: what is acknowledged, group commit, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from tailrace.errors import (
    BadRecord,
    BadSetting,
    Closed,
    OutcomeUnknown,
    TimedOut,
    TooLarge,
    UnknownPartition,
)
from tailrace.home import Home
from tailrace.log.write.group_commit import GroupSettings
from tailrace.log.write.input import CHUNK_BYTES
from tailrace.log.write.linger import Linger
from tailrace.log.write.producer import Producer
from tailrace.storage.calls import Store
from tailrace.testing import SimulatedObjects, SimulatedTable
from tests.log.driving import TABLES
from tests.log.watched import eventually, held, values, watched


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_closing_raises_when_the_thread_that_commits_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what became of the records: a close that returned would say that they are stored."""
    topic, _ = watched()
    out = topic.producer()

    def ended(flight: object) -> None:
        raise SystemExit

    monkeypatch.setattr(out, "_commit", ended)
    out.send(None, b"x")
    out.send(None, b"y")
    with pytest.raises(OutcomeUnknown, match=r"2 of the records it took .* before you send them again"):
        out.close()


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


@pytest.mark.parametrize("timeout", [None, 20])
def test_what_somebody_waits_for_lingers_for_the_shortest_only(timeout: float | None) -> None:
    topic, table = watched("objects")
    linger = Linger(0.1, 30.0)
    with Producer(topic.store, topic.log, topic.described, GroupSettings(linger)) as out:
        linger.seconds = 30.0
        ack = out.send(b"a", b"1")
        time.sleep(0.3)
        assert not table.appends, "nobody waits"
        began = time.monotonic()
        assert ack.result(timeout) == 0
        assert time.monotonic() - began < 10


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
    with pytest.raises(BadSetting, match=r"max_bytes is at least 1, not 0|linger is at least 0 seconds, not -1"):
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
            out.flush(1)
        assert time.monotonic() - began < 4


def test_records_without_keys_reach_all_partitions_also_one_by_one() -> None:
    topic, _ = watched()
    with topic.producer() as out:
        for n in range(4 * topic.partitions):
            out.send(None, b"%d" % n).result(60)
    assert all(end for _, end in topic.ends().values()), topic.ends()
