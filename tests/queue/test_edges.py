"""The queue at its edges: forks, stopped processes, signals, names, sizes, nothing at all, few descriptors."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadInput, BadName, Broken, HomeError, TooLarge
from tailrace.home import Home
from tailrace.log.record import partition_of
from tailrace.queue import Envelope, Message
from tests.queue.conftest import until
from tests.queue.test_trouble import with_clock
from tests.stopping import stop_outside_a_commit

WORKER = """
    import resource, signal, sys, threading, time, tailrace

    folder, files, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    if files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    def handler(envelope):
        with open(folder + ".notes", "a") as out:
            out.write(f"{envelope.message} {envelope.attempt}\\n")
        print("handles", flush=True)
        time.sleep(seconds)

    stop = threading.Event()  # asked from the very start: a signal before that would end the process as it is
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with tailrace.open(folder) as home:
        with home.queue("q").tail(handler, ttl=1.0, threads=4):
            while not stop.wait(0.05):
                pass
"""


def start(folder: Path, *, files: int = 0, seconds: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(folder), str(files), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def notes(folder: Path) -> list[tuple[int, int]]:
    """What workers have handled: the message, and which attempt that was."""
    file = Path(f"{folder}.notes")
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(a), int(b)) for a, b in (line.split() for line in lines)]


# --- processes
def test_a_forked_child_neither_uses_nor_ends_its_parents_worker(tmp_path: Path) -> None:
    got: list[Any] = []
    with tailrace.open(tmp_path / "home") as home:
        queue = home.queue("q", shards=2)
        with queue.tail(lambda envelope: got.append(envelope.message)) as worker:
            queue.push("before")
            until(lambda: got == ["before"])
            if (child := os.fork()) == 0:
                code = 1
                try:
                    worker.shutdown()
                    queue.push("from the child")
                except HomeError:
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            queue.push("after")
            assert queue.drain(30)
    assert got == ["before", "after"]


def test_a_worker_that_is_stopped_for_longer_than_its_heartbeat(tmp_path: Path) -> None:
    """Another takes its message over; what the first one says later does not count, and it goes on with new ones."""
    folder = tmp_path / "home"
    with tailrace.open(folder) as home:
        queue = home.queue("q", shards=1)
        queue.push(1)
        with start(folder, seconds=2.0) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "handles\n"
                stop_outside_a_commit(worker, folder)
                got: list[Any] = []
                with queue.tail(lambda envelope: got.append((envelope.message, envelope.attempt)), ttl=1.0):
                    assert queue.drain(30)
                assert got == [(1, 2)]
                worker.send_signal(signal.SIGCONT)
                queue.push(2)
                assert queue.drain(30)
            finally:
                worker.send_signal(signal.SIGCONT)
                worker.terminate()
                assert worker.wait(30) == 0
        assert notes(folder) == [(1, 1), (2, 1)]
        assert queue.stats().acked == 2


def test_a_signal_at_any_moment_loses_and_repeats_nothing(tmp_path: Path) -> None:
    folder, rng = tmp_path / "home", random.Random(17)
    with tailrace.open(folder) as home:
        queue = home.queue("q", shards=4)
        queue.push_many([Message(n, f"k{n % 5}") for n in range(200)])
        for _ in range(3):
            with start(folder, seconds=0.002) as worker:
                assert worker.stdout is not None
                until(lambda: queue.stats().consumers, 60)
                time.sleep(rng.uniform(0, 0.15))  # any moment will do
                worker.send_signal(rng.choice([signal.SIGTERM, signal.SIGINT]))
                worker.stdout.read()
                assert worker.wait(30) == 0
            assert not queue.stats().consumers, "a worker that was asked to end gives its shards back"
        with start(folder) as worker:
            threading.Thread(target=lambda: worker.stdout and worker.stdout.read()).start()
            until(lambda: queue.stats().consumers, 60)  # else everything may be done before it has begun
            assert queue.drain(60)
            worker.terminate()
            assert worker.wait(30) == 0
    assert Counter(notes(folder)) == Counter((n, 1) for n in range(200))


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    with tailrace.open(folder) as home:
        queue = home.queue("q")
        queue.push_many(range(500))
        with start(folder, files=64) as worker:
            threading.Thread(target=lambda: worker.stdout and worker.stdout.read()).start()
            until(lambda: queue.stats().consumers, 60)  # else everything may be done before it has begun
            assert queue.drain(60)
            worker.terminate()
            assert worker.wait(30) == 0
    assert sorted(n for n, _ in notes(folder)) == list(range(500))


def test_a_worker_ends_when_the_disk_has_failed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = home.queue("q", shards=1)
    queue.push("x")

    def broken(*_: object) -> None:
        raise Broken("the disk failed; open the home again")

    with queue.tail(lambda envelope: None) as worker:
        until(lambda: not queue.stats().backlog)
        with monkeypatch.context() as patched:
            patched.setattr(type(home.store.table), "write", broken)
            patched.setattr(type(home.store.table), "get", broken)
            assert worker.join(30)
    assert isinstance(worker.error, Broken)


# --- names
@pytest.mark.parametrize("name", ["", ".", "a.b", "a/b", "é", "e\u0301", "a b", "a\n", "$Topics", "q-dead", "a" * 196])
def test_names_that_a_queue_cannot_have(home: Home, name: str) -> None:
    with pytest.raises(BadName) as refused:
        home.queue(name).push("x")
    assert len(str(refused.value)) < 300
    assert home.topics() == []


def test_the_longest_name_has_dead_letters_too(home: Home) -> None:
    queue = home.queue("a" * 195, shards=1, attempts=1)
    queue.push("x")
    with queue.tail(lambda envelope: 1 / 0):
        assert queue.drain(30)
    assert [letter.message for letter in queue.dead()] == [b'"x"']
    queue.delete(sure=True)
    assert home.topics() == []


def test_the_name_of_a_topic_with_records_is_refused(home: Home) -> None:
    """Its records would become messages, and its retention would stop."""
    home.topic("orders", partitions=1).append([(b"key", b"a record")])
    with pytest.raises(BadName, match="'orders' exists and is no queue"):
        home.queue("orders").push("x")
    with pytest.raises(BadName, match="'orders' exists and is no queue"):
        home.queue("orders").tail(print)
    assert (home.queues(), [record.value for record in home.topic("orders").records()]) == ([], [b"a record"])
    home.topic("empty", partitions=2)
    assert home.queue("empty").push("x").offset == 0


def test_names_that_differ_in_case_are_two_queues(home: Home) -> None:
    home.queue("mail").push(1)
    home.queue("Mail").push(2)
    assert (home.queues(), home.queue("mail").stats().backlog) == (["Mail", "mail"], 1)


# --- many, at one moment
def test_ten_thousand_keys(home: Home) -> None:
    queue, got, lock = home.queue("q", shards=8), list[int](), threading.Lock()
    for n in range(0, 10_000, 1_000):
        queue.push_many([Message(k, f"key-{k}") for k in range(n, n + 1_000)])

    def handler(envelopes: Any) -> None:
        with lock:
            got.extend(envelope.message for envelope in envelopes)

    with queue.tail(handler, batch=True, batch_size=1_000):
        assert queue.drain(60)
    assert sorted(got) == list(range(10_000))


def test_a_thousand_messages_due_at_one_moment(home: Home) -> None:
    queue, got = home.queue("q", shards=4), list[int]()
    due = time.time() + 3600
    queue.push_many([Message(n, str(n % 7), not_before=due - time.time()) for n in range(1_000)])
    assert queue.stats().delayed == 1_000
    with with_clock(home, 3700).tail(lambda envelope: got.append(envelope.message), batch_size=500):
        assert queue.drain(60)
    assert sorted(got) == list(range(1_000))
    now = queue.stats()
    assert (now.delayed, now.inserted, now.acked) == (0, 1_000, 1_000)


def test_many_who_make_one_queue_at_once(home: Home) -> None:
    threads = [threading.Thread(target=home.queue("q").push, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got: list[int] = []
    with home.queue("q").tail(lambda envelope: got.append(envelope.message)):
        assert home.queue("q").drain(30)
    assert (sorted(got), home.topics()) == (list(range(8)), ["q"])


def test_the_same_call_twice(home: Home) -> None:
    queue = home.queue("q", shards=1)
    queue.push("x")
    queue.pause()
    queue.pause()
    assert queue.stats().paused
    queue.play()
    queue.play()
    assert not queue.stats().paused
    assert (queue.purge(sure=True), queue.purge(sure=True)) == (1, 0)
    assert queue.rebalance(2, timeout=0) == queue.rebalance(2, timeout=0) == {}
    assert queue.replay(0).messages == queue.replay(0).messages == 1


# --- large, none, foreign
def test_a_message_at_its_limit_and_over_it(home: Home) -> None:
    queue, got = home.queue("q", shards=1), list[int]()
    queue.topic().configure(max_record_bytes=1_000)
    queue = home.queue("q")
    queue.push(b"x" * 1_000)
    queue.push(b"x" * 990, "k" * 10)
    for message in (Message(b"x" * 1_001), Message(b"x" * 990, "k" * 11)):
        with pytest.raises(TooLarge, match="1,001"):
            queue.push_many([b"small", message])
    assert queue.stats().inserted == 2, "nothing of a refused push is stored"
    with queue.tail(lambda envelope: got.append(len(envelope.message))):
        assert queue.drain(30)
    assert sorted(got) == [990, 1_000]


def test_a_delayed_message_at_its_limit_and_over_it(home: Home) -> None:
    queue, got = home.queue("q", shards=1), list[int]()
    queue.push(b"x" * 350_000, not_before=60)
    with pytest.raises(TooLarge, match="350,000 bytes"):
        queue.push(b"x" * 350_001, not_before=60)
    with with_clock(home, 61).tail(lambda envelope: got.append(len(envelope.message))):
        assert queue.drain(30)
    assert got == [350_000]


def test_nothing_at_all(home: Home) -> None:
    queue, got = home.queue("q", shards=2), list[Any]()
    assert queue.push_many([]) == []
    assert queue.drain(0.1)
    assert (list(queue.dead()), queue.requeue(), queue.purge(sure=True), queue.replays()) == ([], 0, 0, [])
    for message in (b"", "", None, {}, [], 0):
        queue.push(message)
    queue.push("empty key", "")
    with queue.tail(lambda envelope: got.append((envelope.message, envelope.shard_key))):
        assert queue.drain(30)
    assert sorted(got, key=repr) == sorted(
        [(b"", None), ("", None), (None, None), ({}, None), ([], None), (0, None), ("empty key", "")], key=repr
    )


@pytest.mark.parametrize(
    "message",
    [float("nan"), {"a": [float("inf")]}, "\ud800", {1}, object()],
    ids=["nan", "infinity", "surrogate", "set", "object"],
)
def test_what_json_cannot_say_is_refused(home: Home, message: object) -> None:
    with pytest.raises(BadInput, match="cannot be encoded by Json"):
        home.queue("q").push(message)


# --- what was stored is gone, or of another time
def test_a_damaged_message_holds_up_its_shard_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Until an operator decides to do without it: then it counts as dropped, and what is behind it is handled."""
    folder, got = tmp_path / "home", list[Any]()
    with tailrace.open(folder) as home:
        queue = home.queue("q", shards=2)
        keys = [next(str(n) for n in range(100) if partition_of(str(n).encode(), 2) == q) for q in range(2)]
        queue.push_many([Message("before", keys[0]), Message("other before", keys[1])])
        queue.push(b"x" * 300_000, keys[0])
        (stored,) = (file for file in (folder / "objects").rglob("*") if file.is_file())
        stored.write_bytes(stored.read_bytes()[:-200_000] + bytes(200_000))
        queue.push_many([Message("behind", keys[0]), Message("other behind", keys[1])])
        with queue.tail(lambda envelope: got.append(envelope.message)) as worker:
            until(lambda: sorted(got) == ["before", "other before", "other behind"])
            until(lambda: "shard 0 waits at message 1" in caplog.text)
            assert worker.running
            until(lambda: queue.stats().acked == 3)
            now = queue.stats()
            assert (now.backlog, now.shards[0].backlog) == (2, 2)
            assert 0 < now.shards[0].oldest_seconds < 60
            damaged = [lost for damage in home.scrub().damages for lost in damage.lost]
            queue.topic().quarantine(damaged, "the disk of 3 May")
            until(lambda: got[-1] == "behind", 60)
            assert queue.drain(30)
        now = queue.stats()
        assert (now.acked, now.purged, now.backlog) == (4, 1, 0)


def test_a_home_that_is_restored_gives_what_was_not_done_then(tmp_path: Path) -> None:
    """Nothing that was in the copy is lost, and dedup ids are as of then."""
    folder, got = tmp_path / "home", list[int]()
    with tailrace.open(folder) as home:
        home.queue("q", shards=1).push_many([Message(n, dedup=str(n)) for n in range(3)])
    shutil.copytree(folder, tmp_path / "copy")
    with tailrace.open(folder) as home:
        home.queue("q").push(3, dedup="3")
        with home.queue("q").tail(lambda envelope: None):
            assert home.queue("q").drain(30)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    with tailrace.open(folder) as home:
        queue = home.queue("q")
        assert [queue.push(n, dedup=str(n)).duplicate for n in range(4)] == [True, True, True, False]
        with queue.tail(lambda envelope: got.append(envelope.message)):
            assert queue.drain(30)
    assert sorted(got) == [0, 1, 2, 3]


def test_a_home_that_is_closed_ends_its_workers(tmp_path: Path) -> None:
    home = tailrace.open(tmp_path / "home")
    worker = home.queue("q", shards=1).tail(print)
    until(lambda: worker.shards == [0])
    home.close()
    assert worker.join(30)
    worker.shutdown()
    worker.shutdown()


@pytest.mark.parametrize("value", [b"yesterday", b"", b"-1", b"9" * 15, b"9" * 40])
def test_a_record_that_a_producer_writes_into_a_queue_is_a_message(home: Home, value: bytes) -> None:
    """Whatever its headers are called."""
    queue, got = home.queue("q", shards=1), list[Envelope]()
    queue.push("first")
    with home.topic("q").producer() as out:
        out.send(b"key", b"content", headers=[("pushed", value)])
    with queue.tail(got.append):
        assert queue.drain(30)
    assert [one.message for one in got] == ["first", b"content"]
    assert got[0].insertion_time <= got[1].insertion_time
    assert queue.explain(0, 1).state == "acked"
