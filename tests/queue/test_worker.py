"""Workers: the scenarios of the source document, order per key, retries, dead letters, bad handlers."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tailrace.errors import AlreadyThere, BadSetting
from tailrace.home import Home
from tailrace.log.record import partition_of
from tailrace.queue import Envelope, Message
from tests.queue.conftest import until


def test_two_hundred_messages_to_three_consumers(home: Home) -> None:
    """While no shard moves, every number is exact: what is emitted is handled, and acknowledged, once."""
    queue, got = home.queue("q", shards=6), list[Any]()
    workers = [queue.tail(lambda envelope: got.append(envelope.message), ttl=60.0) for _ in range(3)]
    until(lambda: sorted(len(worker.shards) for worker in workers) == [2, 2, 2])
    for n in range(100):
        queue.push(n)
    queue.push_many(range(100, 200))
    assert queue.drain(60)
    for worker in workers:
        worker.shutdown()
    assert sorted(got) == list(range(200))
    assert sum(worker.acked for worker in workers) == sum(worker.emitted for worker in workers) == 200
    now = queue.stats()
    assert (now.inserted, now.routed, now.emitted, now.acked, now.backlog, now.running) == (200, 200, 200, 200, 0, 0)


def test_two_hundred_messages_that_wait_for_three_consumers(home: Home) -> None:
    """Handled and acknowledged exactly once each.  `emitted` may be higher: the first consumer takes all shards, emits
    some of their messages, and gives shards to the others before a handler has begun with these; the next owner emits
    them again.  A counter of Prometheus must not go back, so they are not subtracted."""
    queue, got = home.queue("q", shards=6), list[Any]()
    for n in range(100):
        queue.push(n)
    queue.push_many(range(100, 200))
    workers = [queue.tail(lambda envelope: got.append(envelope.message)) for _ in range(3)]
    assert queue.drain(60)
    for worker in workers:
        worker.shutdown()
    assert sorted(got) == list(range(200))
    assert sum(worker.acked for worker in workers) == 200
    now = queue.stats()
    assert (now.inserted, now.routed, now.acked, now.backlog, now.running) == (200, 200, 200, 0, 0)
    assert now.emitted >= 200


def test_an_envelope_says_what_is_known(home: Home) -> None:
    queue, got = home.queue("q", shards=2), list[Envelope]()
    pushed = queue.push({"a": 1}, "key")
    with queue.tail(got.append, timeout=60) as worker:
        until(lambda: got)
    one = got[0]
    assert (one.message, one.shard_key, one.shard, one.offset) == ({"a": 1}, "key", pushed.shard, pushed.offset)
    assert (one.attempt, one.replayed, one.queue) == (1, False, "q")
    assert one.deadline is not None
    assert abs(time.time() * 1000 - one.inserted) < 60_000
    assert worker.acking and worker.batch_size == 100 and not worker.running  # noqa: PT018


def test_a_consumer_added_to_a_backlog_gets_its_share(home: Home) -> None:
    queue, go = home.queue("q", shards=4), threading.Event()
    queue.push_many(range(40))
    with queue.tail(lambda envelope: go.wait(0.05), threads=1, batch_size=2) as first:
        until(lambda: len(first.shards) == 4)
        with queue.tail(lambda envelope: None) as second:
            until(lambda: len(second.shards) == 2)
            until(lambda: len(first.shards) == 2)
            go.set()
            assert queue.drain(30)
    assert first.acked + second.acked == 40


def test_a_key_is_handled_in_order_and_never_twice_at_once(home: Home) -> None:
    queue, lock = home.queue("q", shards=3, backoff=0.01), threading.Lock()
    running: Counter[str] = Counter()
    done: dict[str, list[int]] = {}
    failed: set[Any] = set()

    def handler(envelope: Envelope) -> None:
        key = str(envelope.shard_key)
        with lock:
            running[key] += 1
            assert running[key] == 1, "a key runs twice at once"
        time.sleep(0.001)
        with lock:
            running[key] -= 1
            if envelope.message % 7 == 0 and (key, envelope.message) not in failed:
                failed.add((key, envelope.message))
                raise RuntimeError("once")
            done.setdefault(key, []).append(envelope.message)

    for n in range(20):
        queue.push_many([Message(n, f"key-{k}") for k in range(5)])
    workers = [queue.tail(handler) for _ in range(2)]
    assert queue.drain(60)
    for worker in workers:
        worker.shutdown()
    for key, some in done.items():
        assert list(dict.fromkeys(some)) == list(range(20)), key
    assert queue.stats().errored == 15


def test_a_handler_that_always_raises(home: Home) -> None:
    queue, tried = home.queue("q", shards=2, attempts=3, backoff=0.01), list[int]()
    queue.push({"bad": True}, "key")
    queue.push(b"good", "key")

    def handler(envelope: Envelope) -> None:
        tried.append(envelope.attempt)
        if envelope.message != b"good":
            raise ValueError("no such address")

    with queue.tail(handler):
        assert queue.drain(30)
    assert tried == [1, 2, 3, 1], "the good one waits for its key"
    (letter,) = queue.dead()
    assert (letter.message, letter.shard_key, letter.attempts) == (b'{"bad":true}', b"key", 3)
    assert letter.reason == "ValueError: no such address"
    now = queue.stats()
    assert (now.acked, now.errored, now.dead, now.backlog) == (1, 3, 1, 0)


def test_attempts_are_kept_when_consumers_go(home: Home) -> None:
    queue, attempts = home.queue("q", shards=1, attempts=4, backoff=0.001), list[int]()
    queue.push(b"bad")

    def handler(envelope: Envelope) -> None:
        attempts.append(envelope.attempt)
        raise ValueError

    for _ in range(4):
        seen = len(attempts)
        with queue.tail(handler, threads=1):
            until(lambda seen=seen: len(attempts) > seen or queue.stats().dead)  # type: ignore[misc]
    with queue.tail(handler):
        assert queue.drain(30)
    assert attempts == [1, 2, 3, 4]


def test_more_failing_messages_than_a_window_counts_are_the_next_consumers(home: Home) -> None:
    queue = home.queue("q", shards=1, attempts=1000, backoff=60)
    queue.push_many(range(70))
    with queue.tail(_raises):
        until(lambda: queue.stats().errored >= 70)
    with queue.tail(lambda envelope: None) as second:
        assert queue.drain(30)
    assert second.acked == 70


def _raises(envelope: Envelope) -> None:
    raise ValueError("no such address")


def test_a_final_error_is_not_tried_again(home: Home) -> None:
    queue, tried = home.queue("q", shards=1, final=(KeyError,)), list[int]()
    queue.push(b"bad")

    def handler(envelope: Envelope) -> None:
        tried.append(envelope.attempt)
        raise KeyError("gone")

    with queue.tail(handler):
        assert queue.drain(30)
    assert (tried, queue.stats().dead) == ([1], 1)


def test_by_hand(home: Home) -> None:
    queue, attempts = home.queue("q", shards=1), list[Any]()
    queue.push_many([Message("ack", "a"), Message("retry", "b"), Message("dead", "c")])

    def handler(envelope: Envelope) -> None:
        attempts.append((envelope.message, envelope.attempt))
        if envelope.message == "dead":
            envelope.dead("not wanted")
        elif envelope.message == "retry" and envelope.attempt == 1:
            envelope.retry(after=0.01)
        else:
            envelope.ack()
            envelope.ack()

    with queue.tail(handler, manual=True):
        assert queue.drain(30)
    assert sorted(attempts) == [("ack", 1), ("dead", 1), ("retry", 1), ("retry", 2)]
    assert [letter.reason for letter in queue.dead()] == ["not wanted"]
    assert queue.stats().acked == 2


def test_acknowledged_later_from_another_thread(home: Home) -> None:
    queue, held = home.queue("q", shards=1), list[Envelope]()
    queue.push_many(range(10))
    with queue.tail(held.append, manual=True, threads=2):
        until(lambda: len(held) == 10)
        assert queue.stats().running == 10
        for envelope in reversed(held):
            envelope.ack()
        assert queue.drain(30)


def test_batches(home: Home) -> None:
    queue, sizes = home.queue("q", shards=2), list[int]()
    queue.push_many([Message(n, f"k{n % 3}") for n in range(50)])
    with queue.tail(lambda envelopes: sizes.append(len(envelopes)), batch=True, batch_size=20, threads=1):
        assert queue.drain(30)
    assert sum(sizes) == 50
    assert max(sizes) > 1


def test_at_most_once(home: Home) -> None:
    queue, got = home.queue("q", shards=1), list[Any]()
    queue.push_many(range(5))

    def handler(envelope: Envelope) -> None:
        got.append(envelope.message)
        raise RuntimeError("lost")

    with queue.tail(handler, acking=False):
        until(lambda: len(got) == 5)
    assert (queue.stats().acked, queue.stats().errored, queue.stats().backlog) == (5, 5, 0)
    assert "attempt 1" in str(queue.explain(0, 4))
    assert "RuntimeError: lost" in str(queue.explain(0, 4))
    assert sorted(got) == list(range(5))


def test_a_message_that_cannot_be_read_holds_up_nobody(home: Home) -> None:
    class Broken:
        def encode(self, message: Any) -> bytes:
            return b"?"

        def decode(self, data: bytes) -> Any:
            raise LookupError("what is this?")

    home.queue("q", shards=1, codec=Broken()).push("x", "key")
    queue, got = home.queue("q"), list[Any]()
    queue.push(b"fine", "key")
    with queue.tail(lambda envelope: got.append(envelope.message)):
        assert queue.drain(30)
    assert got == [b"fine"]
    (letter,) = queue.dead()
    assert (letter.message, letter.coded) == (b"?", True)
    assert "cannot be decoded" in letter.reason


def test_a_handler_that_hangs_is_given_up(home: Home) -> None:
    queue, go, attempts = home.queue("q", shards=1, timeout=0.1, backoff=0.01), threading.Event(), list[int]()
    queue.push(b"slow")

    def handler(envelope: Envelope) -> None:
        attempts.append(envelope.attempt)
        if envelope.attempt == 1:
            go.wait(30)

    with queue.tail(handler, threads=1) as worker:
        assert queue.drain(30)
        go.set()
    assert attempts == [1, 2]
    assert (worker.errored, worker.acked) == (1, 1), "what the late one says does not count"


def test_a_handler_that_exits_does_not_end_the_worker(home: Home) -> None:
    queue, attempts = home.queue("q", shards=1, backoff=0.01), list[int]()
    queue.push(b"x")

    def handler(envelope: Envelope) -> None:
        attempts.append(envelope.attempt)
        if envelope.attempt == 1:
            raise SystemExit(1)

    with queue.tail(handler, threads=1):
        assert queue.drain(30)
    assert attempts == [1, 2]


def test_a_shutdown_gives_shards_back_at_once_and_counts_no_attempt(home: Home) -> None:
    queue, started, go = home.queue("q", shards=1), threading.Event(), threading.Event()
    queue.push_many([Message(n, "key") for n in range(10)])

    def slow(envelope: Envelope) -> None:
        started.set()
        go.wait(30)

    first = queue.tail(slow)
    started.wait(30)
    threading.Timer(0.05, go.set).start()
    first.shutdown()
    attempts: list[int] = []
    with queue.tail(lambda envelope: attempts.append(envelope.attempt)):
        assert queue.drain(30)
    assert first.acked == 1
    assert attempts == [1] * 9


def test_a_shutdown_that_does_not_wait_counts_an_attempt_of_what_has_begun_alone(home: Home) -> None:
    queue, began, go = home.queue("q", shards=1), list[Any](), threading.Event()
    queue.push_many(range(10))

    def slow(envelope: Envelope) -> None:
        began.append(envelope.message)
        go.wait(30)

    first = queue.tail(slow, threads=2)
    until(lambda: len(began) == 2)
    first.shutdown(grace=0)
    attempts: dict[Any, int] = {}
    with queue.tail(lambda envelope: attempts.update({envelope.message: envelope.attempt})):
        assert queue.drain(30)
    go.set()
    assert attempts == {n: 2 if n in began else 1 for n in range(10)}


def test_two_consumers_with_one_name(home: Home) -> None:
    queue = home.queue("q", shards=1)
    with queue.tail(print, name="one", ttl=0.6) as worker:
        assert worker.id == "one"
        bells = _bells()
        for _ in range(3):
            with pytest.raises(AlreadyThere, match="one"):
                queue.tail(print, name="one", ttl=0.6)
        assert _bells() == bells, "a refused worker has left files open"


def _bells() -> int:
    """How many bells of this process watch a file."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify"
    return found


def test_bad_settings_of_a_worker(home: Home) -> None:
    queue = home.queue("q", shards=1)
    with pytest.raises(BadSetting, match="did you mean 'threads'"):
        queue.tail(print, thread=3)
    with pytest.raises(BadSetting, match="batch_size"):
        queue.tail(print, batch_size=0)
    with pytest.raises(BadSetting, match="acking is True or False, not 'no'"):
        queue.tail(print, acking="no")
    with pytest.raises(BadSetting, match="timeout is a number of seconds above 0, not True"):
        queue.tail(print, timeout=True)
    with pytest.raises(BadSetting, match="a handler is a function"):
        queue.tail("print")  # type: ignore[arg-type]


def test_a_message_that_fails_while_its_shard_is_given_back_is_the_next_owners(home: Home) -> None:
    """The first owner neither runs it again beside the next one, nor holds its key up when the shard comes back."""
    queue, lock = home.queue("q", shards=2, backoff=0.3, max_backoff=0.3), threading.Lock()
    calls: list[tuple[str, int]] = []
    fail = threading.Event()

    def handler(who: str) -> Any:
        def handle(envelope: Envelope) -> None:
            with lock:
                calls.append((who, envelope.message))
            if who == "first" and envelope.message < 2:
                fail.wait(60)
                raise ValueError

        return handle

    with queue.tail(handler("first"), ttl=1.0) as first:
        until(lambda: first.shards == [0, 1])
        queue.push_many([Message(0, _key_of(0)), Message(1, _key_of(1))])
        until(lambda: len(calls) == 2)
        with queue.tail(handler("second"), ttl=1.0) as second:
            until(lambda: any(desk.leaving for desk in first._consumer.desks.values()))
            (moved,) = [q for q, desk in first._consumer.desks.items() if desk.leaving]
            fail.set()
            until(lambda: second.shards == [moved])
            until(lambda: ("second", moved) in calls)
            time.sleep(0.5)  # longer than the backoff
            assert calls.count(("first", moved)) == 1
        until(lambda: first.shards == [0, 1])
        fail.set()
        queue.push(2, _key_of(moved))
        until(lambda: ("first", 2) in calls)


def _key_of(shard: int) -> str:
    return next(str(n) for n in range(100) if partition_of(str(n).encode(), 2) == shard)


def test_a_handler_may_take_longer_than_the_heartbeats_timeout(home: Home) -> None:
    """Its consumer goes on beating, so the other one, which has nothing to do, takes nothing over."""
    queue, calls = home.queue("q", shards=2), list[tuple[str, int]]()
    queue.push("long", "key")
    with queue.tail(lambda envelope: _slowly("first", envelope, calls), name="first", ttl=0.5) as first:
        until(lambda: calls)
        with queue.tail(lambda envelope: _slowly("second", envelope, calls), name="second", ttl=0.5):
            assert queue.drain(60)
    assert calls == [("first", 1)]
    assert (first.acked, queue.stats().errored) == (1, 0)


def _slowly(name: str, envelope: Envelope, calls: list[tuple[str, int]]) -> None:
    calls.append((name, envelope.attempt))
    time.sleep(2.0)
