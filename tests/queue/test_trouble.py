"""Queues in trouble: a full disk, clocks that are wrong, handlers that end their process, signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadInput, DiskFull, GaveUp, TimedOut
from tailrace.home import Home
from tailrace.queue import Envelope, Message
from tailrace.queue.consumer import Consumer
from tailrace.queue.delayed import SCAN_SECONDS, clock_key
from tailrace.queue.queue import Queue
from tailrace.storage.calls import Steps
from tests.faults.test_disk_trouble import disk
from tests.queue.conftest import until

__all__ = ["disk"]
HOUR = 3600.0

WORKER = """
    import os, signal, sys, time, tailrace

    def handler(envelope):
        if envelope.message == "kill":
            os._exit(7)
        if envelope.message == "hang":
            while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                time.sleep(0.01)  # the main thread is not yet where it takes signals
            print("hangs", flush=True)
            time.sleep(600)

    with tailrace.open(sys.argv[1]) as home:
        with home.queue("q").tail(handler, ttl=0.6, threads=2) as worker:
            worker.run_forever()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def with_clock(home: Home, ahead: float) -> Queue:
    """The queue as a process sees it whose clock is wrong by so many seconds."""
    right = home.queue("q")
    return Queue(home.store, "q", new_transaction=right._new_transaction, wall=lambda: time.time() + ahead)


def test_a_full_disk_loses_nothing(disk: Path) -> None:
    """Pushes are refused, handlers' outcomes wait or are lost with the lease; with room again all is done."""
    with tailrace.open(disk / "home") as home:
        queue = home.queue("q", shards=2, attempts=1000, backoff=0.01, max_backoff=0.1)
        handled: set[bytes] = set()
        full, pushed = threading.Event(), 0

        def handler(envelope: Envelope) -> None:
            full.wait()
            handled.add(envelope.message)

        with queue.tail(handler, ttl=1.0, grace=1.0):
            until(lambda: queue.stats().consumers)
            with pytest.raises(DiskFull):
                while True:
                    queue.push(b"%06d" % pushed + b"x" * 1000)
                    pushed += 1
            full.set()
            time.sleep(1.0)  # rounds fail, or their last pages still find room: both must be right
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            assert queue.drain(60)
        now = queue.stats()
        assert (now.acked, now.dead, now.backlog) == (now.routed, 0, 0)
        assert {int(message[:6]) for message in handled} >= set(range(pushed))
        assert now.routed in (pushed, pushed + 1)


def test_an_outage_while_a_delayed_message_is_moved_ends_no_worker(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move had no answer, and then nothing could be read: the worker tries it again once the storage is back."""
    queue, got, out = home.queue("q", shards=1), list[str](), threading.Event()
    table: Any = type(home.store.table)
    write, get = table.write, table.get

    def unanswered(self: Any, *actions: Any) -> Any:
        if any(action.key == clock_key(queue.topic().id) for action in actions) and len(actions) > 2 and not got:
            out.set()
            raise TimedOut("no answer")
        return write(self, *actions)

    def unreachable(self: Any, key: Any) -> Any:
        if out.is_set() and threading.current_thread().name == "tailrace-queue-q":
            out.clear()
            got.append("")
            raise GaveUp("no answer for a minute")
        return get(self, key)

    queue.push("later", not_before=0.3)
    monkeypatch.setattr(table, "write", unanswered)
    monkeypatch.setattr(table, "get", unreachable)
    with queue.tail(lambda envelope: got.append(envelope.message)) as worker:
        until(lambda: "later" in got or not worker.running)
        assert worker.error is None
        assert queue.drain(30)
    assert (got, queue.stats().acked) == (["", "later"], 1)


def test_a_failure_that_lasts_is_logged_once_a_minute(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue, rounds, tried = home.queue("q", shards=1), Consumer.round, list[int]()
    queue.push("x")

    def fails(consumer: Consumer) -> Steps[float]:
        tried.append(1)
        if len(tried) < 4:
            raise DiskFull("no room")
        return (yield from rounds(consumer))

    monkeypatch.setattr(Consumer, "round", fails)
    with queue.tail(lambda envelope: None):
        assert queue.drain(30)
    assert caplog.text.count("a round failed and is tried again: no room") == 1


def test_clocks_an_hour_off_change_nothing_about_who_handles_what(home: Home) -> None:
    queue = home.queue("q", shards=4)
    queue.push_many([Message(n, str(n % 7)) for n in range(100)])
    got: list[int] = []
    with (
        with_clock(home, HOUR).tail(lambda envelope: got.append(envelope.message), name="ahead", ttl=1.0),
        with_clock(home, -HOUR).tail(lambda envelope: got.append(envelope.message), name="behind", ttl=1.0),
    ):
        assert queue.drain(60)
        assert queue.rebalance(timeout=30) == {"ahead": 2, "behind": 2}
    assert sorted(got) == list(range(100))
    assert queue.stats().errored == 0


def test_a_delayed_message_is_due_by_the_clock_of_whoever_moves_it(home: Home) -> None:
    """Pushed with a clock that is ahead it comes late, never twice, and is not lost."""
    queue = home.queue("q", shards=1)
    with_clock(home, HOUR).push("late", not_before=0.01)
    got: list[str] = []
    with queue.tail(lambda envelope: got.append(envelope.message)):
        queue.push("now")
        until(lambda: got == ["now"])
    assert queue.stats().delayed == 1
    with with_clock(home, HOUR + 1).tail(lambda envelope: got.append(envelope.message)):
        until(lambda: got == ["now", "late"])
    assert (queue.stats().delayed, queue.stats().acked) == (0, 2)


def test_a_clock_that_was_hours_ahead_makes_no_message_come_early(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push("first", not_before=0.01)
    got: list[str] = []
    with with_clock(home, 3 * HOUR).tail(lambda envelope: got.append(envelope.message)):
        until(lambda: got == ["first"])
        until(lambda: _low(home, queue) > (time.time() + HOUR) * 1000)
    assert queue.push("second", not_before=60).delayed
    with queue.tail(lambda envelope: got.append(envelope.message)):
        queue.push("third")
        until(lambda: "third" in got)
    assert got == ["first", "third"]
    assert queue.stats().delayed == 1


def _low(home: Home, queue: Queue) -> int:
    from tailrace.coordination import guard
    from tailrace.queue.delayed import clock_key

    item = home.store.run(guard.read(clock_key(queue.topic().id)))
    return 0 if item is None else int(item["low"])


def test_a_message_that_ends_its_process_is_given_up_and_others_are_handled(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        queue = home.queue("q", shards=1, attempts=3, backoff=0.01)
        queue.push_many(["a", "kill", "b", "c"])
        ended = 0
        worker = start(tmp_path / "home")
        try:
            while not queue.drain(0.2):
                if worker.poll() is not None:
                    said = worker.communicate()[1]
                    assert worker.returncode == 7, said
                    ended += 1
                    assert ended <= 5
                    worker = start(tmp_path / "home")
        finally:
            worker.kill()
            worker.communicate()
        (letter,) = queue.dead()
        assert letter.message == b'"kill"'
        assert letter.reason == "its consumer disappeared 3 times while it was handled"
        assert (ended, queue.stats().acked, queue.stats().dead) == (3, 3, 1)
        told = str(queue.explain(0, 1))
        # a consumer may die before it has noted itself
        noted = told.count("it disappeared before an outcome was written")
        assert noted == 3 or (noted < 3 and "not recorded: consumers that had the shard" in told), told


def test_a_second_signal_does_not_wait_for_handlers(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        queue = home.queue("q", shards=1)
        queue.push("hang")
        with start(tmp_path / "home") as worker:
            assert worker.stdout is not None
            assert worker.stderr is not None
            assert worker.stdout.readline() == "hangs\n"
            worker.send_signal(signal.SIGINT)
            assert "waiting for 1 message" in worker.stderr.readline()
            worker.send_signal(signal.SIGINT)
            assert worker.wait(20) == 0
        assert queue.stats().backlog == 1
        got: list[str] = []
        with queue.tail(lambda envelope: got.append(envelope.message)):
            assert queue.drain(30)
        assert got == ["hang"]


def test_what_cannot_be_delayed_is_refused_before_anything_is_stored(home: Home) -> None:
    queue = home.queue("q", shards=1)
    with pytest.raises(BadInput, match="cannot be delayed; push it by itself"), home.transaction() as t:
        t.push("q", "now")
        t.push("q", "later", not_before=1)
    assert queue.stats().inserted == 0


def test_with_two_attempts_too_only_the_message_to_blame_is_given_up(tmp_path: Path) -> None:
    """After its first end of a process it is handed out alone, so that the next counts for no other."""
    with tailrace.open(tmp_path / "home") as home:
        queue = home.queue("q", shards=1, attempts=2, backoff=0.01)
        queue.push_many(["kill", *map(str, range(20))])
        ended = 0
        worker = start(tmp_path / "home")
        try:
            while not queue.drain(0.2):
                if worker.poll() is not None:
                    ended += 1
                    assert ended <= 3
                    worker.communicate()
                    worker = start(tmp_path / "home")
        finally:
            worker.kill()
            worker.communicate()
        assert [letter.message for letter in queue.dead()] == [b'"kill"']
        assert (ended, queue.stats().acked, queue.stats().dead) == (2, 20, 1)


def test_a_clock_that_goes_back_delays_no_message_that_is_due(home: Home) -> None:
    """The clock holder looks at all again, not only at what was due since its last look."""
    queue, ahead = home.queue("q", shards=1), [HOUR]
    of_holder = Queue(home.store, "q", new_transaction=queue._new_transaction, wall=lambda: time.time() + ahead[0])
    got: list[str] = []
    with of_holder.tail(lambda envelope: got.append(envelope.message)) as worker:
        with_clock(home, HOUR).push("first", not_before=0.01)
        until(lambda: got == ["first"])
        ahead[0] = 0.0
        queue.push("second", not_before=0.01)
        until(lambda: got == ["first", "second"], SCAN_SECONDS / 2)
        assert worker.running
