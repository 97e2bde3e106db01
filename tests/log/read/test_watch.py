"""Waiting for appends: told once for one, fewer times for many, by any process, and at little cost."""

from __future__ import annotations

import gc
import logging
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import pytest

import tailrace
from tailrace.coordination.watch import MAX_POLL_SECONDS, Wait, Watch, watch
from tailrace.errors import Broken, OutOfRange, Unavailable
from tailrace.home import Home
from tailrace.log.topic import Topic
from tailrace.storage.calls import Store
from tailrace.testing import SimulatedObjects, SimulatedTable
from tests.log.homes import HERE, homes, orders, raise_floors, until

home = homes(HERE)
topic = orders(2)


class Calls(list[tuple[float, dict[int, int]]]):
    """When a callback was called, and with what."""

    def __call__(self, ends: dict[int, int]) -> None:
        self.append((time.monotonic(), ends))


# -- on_append
def test_one_append_one_call(topic: Topic):
    topic.append([(b"before", b"")])
    calls = Calls()
    with topic.on_append(calls):
        topic.append([(b"a", b"1")])
        until(lambda: len(calls) == 1)
        time.sleep(0.6)
    assert len(calls) == 1
    assert sum(calls[0][1].values()) == 2


def test_ten_quick_appends_fewer_calls_and_one_after_the_last(topic: Topic):
    calls = Calls()
    with topic.on_append(calls):
        for n in range(10):
            topic.append([(b"%d" % n, b"")])
        until(lambda: bool(calls) and sum(calls[-1][1].values()) == 10)
        time.sleep(0.6)
    assert 1 <= len(calls) < 10
    assert sum(calls[-1][1].values()) == 10


def test_storage_that_fails_for_a_moment_while_it_waits_ends_no_calls(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    version, failed = Watch.version, list[float]()

    def fails(watched: Watch) -> int | None:
        if threading.current_thread().name.startswith("tailrace-watch") and len(failed) < 3:
            failed.append(time.monotonic())
            raise Unavailable("locked for 10 s, by another process; try again")
        return version(watched)

    calls = Calls()
    monkeypatch.setattr(Watch, "version", fails)
    with topic.on_append(calls):
        until(lambda: len(failed) == 3)
        topic.append([(b"a", b"1")])
        until(lambda: len(calls) == 1)


def test_a_home_that_is_removed_ends_the_calls_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("t", partitions=1)
        with topic.on_append(Calls()), caplog.at_level(logging.WARNING):
            shutil.rmtree(tmp_path / "home")
            with pytest.raises(Broken, match="removed, moved or replaced"):
                topic.append([(b"a", b"1")])
            until(lambda: "on_append ends" in caplog.text)


def appended(topic: Topic, how: str) -> None:
    if how == "producer":
        with topic.producer() as out:
            out.send(b"a", b"")
    elif how == "transaction":
        with topic.transaction() as t:
            t.send(b"a", b"")
    else:
        topic.named_producer("p").send_batch([(b"a", b"")])


@pytest.mark.parametrize("how", ["producer", "transaction", "named"])
def test_every_way_of_appending_is_told_at_once(topic: Topic, how: str):
    heard = threading.Event()
    stop = watch(topic.store).listen(topic.id, heard.set)
    appended(topic, how)
    stop()
    assert heard.is_set()


def test_no_calls_after_close(topic: Topic):
    calls = Calls()
    topic.on_append(calls).close()
    topic.append([(b"a", b"1")])
    time.sleep(0.3)
    assert not calls


def test_a_callback_that_raises_is_logged_and_called_again(topic: Topic, caplog: pytest.LogCaptureFixture):
    calls = []

    def fails(ends: object) -> None:
        calls.append(ends)
        raise RuntimeError("no")

    with topic.on_append(fails):
        topic.append([(b"a", b"1")])
        until(lambda: len(calls) == 1)
        topic.append([(b"a", b"1")])
        until(lambda: len(calls) == 2)
    assert "on_append callback failed" in caplog.text


def test_a_callback_may_close_its_own_notifier(topic: Topic):
    closed = threading.Event()
    notifier = topic.on_append(lambda ends: (notifier.close(), closed.set()))
    topic.append([(b"a", b"1")])
    assert closed.wait(5)


def test_a_deleted_topic_ends_it(home: Home, topic: Topic, caplog: pytest.LogCaptureFixture):
    with topic.on_append(lambda ends: None) as notifier, caplog.at_level(logging.WARNING):
        home.delete_topic("orders")
        until(lambda: not notifier._thread.is_alive())
    assert "was deleted" in caplog.text


# -- follow
def test_follow_waits_at_the_end_until_it_is_stopped(topic: Topic):
    topic.append([(b"old", b"")])
    seen: list[bytes | None] = []
    with topic.follow() as records:
        thread = threading.Thread(target=lambda: seen.extend(record.key for record in records))
        thread.start()
        for n in range(3):
            topic.append([(b"%d" % n, b"")])
            until(lambda n=n: len(seen) == n + 1, 5)
    thread.join(5)
    assert not thread.is_alive()
    assert seen == [b"0", b"1", b"2"]


def test_follow_starts_where_it_is_told(topic: Topic):
    with topic.transaction() as t:
        for n in range(6):
            t.send(None, b"%d" % n, partition=n % 2)
    with topic.follow(start="earliest") as records:
        assert sorted(next(records).value for _ in range(6)) == [b"%d" % n for n in range(6)]
    with topic.follow(1, 2) as records:
        assert next(records)[1:3] == (1, 2)


def test_follow_past_the_end_waits(topic: Topic):
    with topic.follow(0, 1) as records:
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.append(next(records).offset))
        thread.start()
        with topic.transaction() as t:
            t.send(None, b"", partition=0)
        time.sleep(0.1)
        assert not got
        with topic.transaction() as t:
            t.send(None, b"", partition=0)
        thread.join(5)
    assert got == [1]


def test_follow_below_the_floor_is_an_error(topic: Topic):
    with topic.transaction() as t:
        for _ in range(4):
            t.send(None, b"", partition=0)
    raise_floors(topic, {0: 2})
    with pytest.raises(OutOfRange, match="kept is 2"):
        next(topic.follow(0, 1))
    with topic.follow(0, 1, from_floor=True) as records:
        assert next(records).offset == 2


# -- other processes
WRITER = """
    import sys, time, tailrace
    with tailrace.open(sys.argv[1]) as home:
        topic = home.topic("orders")
        print("ready", flush=True)
        for line in sys.stdin:
            topic.append([(b"k", line.encode())])
            print(time.time(), flush=True)
"""


def test_what_another_process_appends_wakes_who_waits(tmp_path: Path):
    with tailrace.open(tmp_path / "home") as home:
        topic = home.topic("orders", partitions=1)
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), tmp_path / "home"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline() == "ready\n"
        delays = []
        with topic.follow() as records:
            for n in range(5):
                time.sleep(0.1)
                writer.stdin.write(f"{n}\n")
                assert next(records).value == b"%d\n" % n
                delays.append(time.time() - float(writer.stdout.readline()))
        writer.stdin.close()
        assert writer.wait(10) == 0
        writer.stdout.close()
        assert sorted(delays)[2] < 0.5, delays


# -- waiting
def pauses(wait: Wait) -> list[float]:
    return list(wait.pauses())


def test_pauses_grow_to_a_second_and_start_small_again():
    wait = Wait(Watch(), threading.Event())
    grown = []
    for _ in range(12):
        wait.begin()
        grown += pauses(wait)
    assert grown == sorted(grown)
    assert grown[0] < 0.01
    assert grown[-1] == MAX_POLL_SECONDS
    wait.begin(found=True)
    assert pauses(wait)[0] < 0.01


class Versioned:
    def __init__(self) -> None:
        self.number = 0

    def version(self) -> int:
        return self.number


def test_a_new_version_ends_the_wait():
    table = Versioned()
    wait = Wait(Watch(table.version), threading.Event())
    wait.begin()
    table.number += 1
    assert pauses(wait) == []
    wait.begin()
    assert 0.9 < sum(pauses(wait)) < 1.2


def test_what_happens_between_a_look_and_the_wait_is_not_missed():
    event = threading.Event()
    wait = Wait(Watch(), event)
    wait.begin()
    event.set()
    for seconds in wait.pauses():
        assert event.wait(seconds)


def test_a_watch_goes_with_its_table():
    store = Store(SimulatedTable(), SimulatedObjects())
    watched = weakref.ref(watch(store))
    assert watch(store) is watched()
    del store
    gc.collect()
    assert watched() is None


def test_listeners_of_other_topics_hear_nothing():
    heard: list[str] = []
    one = Watch()
    stop = one.listen("a", lambda: heard.append("a"))
    one.signal("b")
    one.signal("a")
    stop()
    one.signal("a")
    assert heard == ["a"]
