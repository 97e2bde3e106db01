"""Consumers in processes of their own: one is killed, one is stopped for a while; nothing is lost or out of order."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.log.groups import group as groups
from tailrace.log.topic import Topic
from tests.log.homes import group_of, positions, until
from tests.stopping import stop_outside_a_commit

CONSUMER = """
    import os, signal, sys, time, tailrace
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with tailrace.open(sys.argv[1]) as home:
        with home.topic("orders").consumer("billing", ttl=2.0, commit_interval=0.05) as consumer:
            for record in consumer:
                os.write(out, b"%d %d\\n" % (record.partition, record.offset))
                time.sleep(0.002)
"""

PARTITIONS, ROUNDS, EACH = 6, 10, 60


class Process:
    """A consumer process, and the file in which it notes what it handles."""

    def __init__(self, home: Path, notes: Path) -> None:
        self.notes = notes
        self.running = subprocess.Popen([sys.executable, "-c", textwrap.dedent(CONSUMER), home, notes])

    def handled(self) -> list[tuple[int, int]]:
        text = self.notes.read_text() if self.notes.exists() else ""
        return [(int(q), int(n)) for q, n in (line.split() for line in text.splitlines())]

    def send(self, number: signal.Signals) -> None:
        self.running.send_signal(number)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def topic(home: Path) -> Iterator[Topic]:
    with tailrace.open(home) as opened:
        yield opened.topic("orders", partitions=PARTITIONS)


@pytest.fixture
def processes(home: Path, topic: Topic, tmp_path: Path) -> Iterator[list[Process]]:
    made = [Process(home, tmp_path / name) for name in ("ann", "bob", "cat")]
    yield made
    for one in made:
        if one.running.poll() is None:
            one.running.kill()
        one.running.wait()


def fill(topic: Topic, processes: list[Process], halfway: Callable[[], None]) -> None:
    """Append for a while, with something happening in between, when everybody is at work."""
    until(lambda: all(len(owned(topic, p)) for p in processes), 60)
    for n in range(ROUNDS):
        with topic.transaction() as t:
            for i in range(EACH):
                t.send(value=b"", partition=i % PARTITIONS)
        if n == ROUNDS // 2:
            until(lambda: all(p.handled() for p in processes))
            halfway()
        time.sleep(0.05)
    until(lambda: positions(topic) == dict.fromkeys(range(PARTITIONS), ROUNDS * EACH // PARTITIONS), 60)


def owned(topic: Topic, process: Process) -> list[int]:
    group = group_of(topic)
    pids = {n: item["shown"]["pid"] for n, item in topic.store.run(groups.members(group)).items()}
    shards = topic.store.run(groups.shards(group))
    return [q for q, item in shards.items() if pids.get(item["owner"]) == process.running.pid]


EVERYTHING = {(q, n) for q in range(PARTITIONS) for n in range(ROUNDS * EACH // PARTITIONS)}


def test_one_of_three_is_killed(topic: Topic, processes: list[Process]):
    fill(topic, processes, lambda: processes[0].send(signal.SIGKILL))
    killed, *others = processes
    for one in others:
        one.send(signal.SIGTERM)
        assert one.running.wait(20) == 0
    handled = [record for p in processes for record in p.handled()]
    assert set(handled) == EVERYTHING
    for one in others:
        mine = one.handled()
        assert len(mine) == len(set(mine))
        for q in range(PARTITIONS):
            offsets = [n for p, n in mine if p == q]
            assert offsets == sorted(offsets)
    twice = len(handled) - len(EVERYTHING)
    assert twice <= len(set(killed.handled())), "only what the killed one had not committed is handled again"
    assert twice < len(EVERYTHING) / 4
    assert topic.store.run(groups.members(group_of(topic))) == {}


def test_one_of_three_is_stopped_and_comes_back(home: Path, topic: Topic, processes: list[Process]):
    def stop() -> None:
        stop_outside_a_commit(processes[0].running, home)
        until(lambda: not owned(topic, processes[0]), 20)
        processes[0].send(signal.SIGCONT)

    fill(topic, processes, stop)
    until(lambda: bool(owned(topic, processes[0])))  # it takes part again
    for one in processes:
        one.send(signal.SIGTERM)
        assert one.running.wait(20) == 0
    assert {record for p in processes for record in p.handled()} == EVERYTHING
    assert positions(topic) == dict.fromkeys(range(PARTITIONS), ROUNDS * EACH // PARTITIONS)


def test_all_stop_cleanly_and_nothing_is_handled_twice(topic: Topic, processes: list[Process]):
    fill(topic, processes, lambda: processes[0].send(signal.SIGTERM))
    for one in processes:
        one.send(signal.SIGTERM)
        assert one.running.wait(20) == 0
    handled = [record for p in processes for record in p.handled()]
    assert set(handled) == EVERYTHING
    # the one record that was in hand when it was told to stop counts as not handled
    assert len(handled) - len(EVERYTHING) <= 1
