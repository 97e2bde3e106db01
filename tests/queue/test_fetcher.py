"""The fetcher: how much it reads, and what it keeps of shards and replays that are done with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.home import Home
from tailrace.queue import fetcher
from tests.log.driving import simulated_home
from tests.queue.conftest import until
from tests.queue.test_acknowledgements import joined, next_of


def test_a_replay_that_is_finished_leaves_no_reader(home: Home) -> None:
    queue, got = home.queue("q", shards=2), list[Any]()
    queue.push_many(range(6))
    with queue.tail(lambda envelope: got.append(envelope.replayed)) as worker:
        assert queue.drain(30)
        queue.replay(0)
        until(lambda: got.count(True) == 6)
        until(lambda: not worker._consumer._fetcher._replays)


def test_each_damage_of_a_shard_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one, too, after the first one was quarantined."""
    monkeypatch.setattr(fetcher, "DAMAGE_SECONDS", 0.05)
    folder, got = tmp_path / "home", list[Any]()
    with tailrace.open(folder) as home:
        queue = home.queue("q", shards=1)
        with queue.tail(lambda envelope: got.append(envelope.message)):
            for n in range(2):
                before = set((folder / "objects").rglob("*"))
                queue.pause()
                queue.push(b"x" * 300_000)
                (stored,) = (file for file in set((folder / "objects").rglob("*")) - before if file.is_file())
                stored.write_bytes(stored.read_bytes()[:-200_000] + bytes(200_000))
                queue.push(n)
                queue.play()
                until(lambda at=2 * n: f"shard 0 waits at message {at}" in caplog.text)
                damaged = [lost for damage in home.scrub().damages for lost in damage.lost]
                queue.topic().quarantine(damaged, "a bad disk")
                until(lambda n=n: n in got)
    assert caplog.text.count("waits at message") == 2


def test_so_many_bytes_wait_in_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "FETCH_BYTES", 10_000)
    monkeypatch.setattr(fetcher, "MOST_BYTES", 50_000)
    home, clock = simulated_home()
    queue = home.queue("q", shards=4)
    for n in range(40):
        queue.push(b"%d" % n + bytes(10_000), f"key-{n}")
    consumer, most, done = joined(queue, clock), 0, 0
    for n in range(120):
        queue.store.run(consumer.round())
        clock.move(0.2)
        desks = consumer.desks.values()
        here = [entry for desk in desks for entry in (*desk.fetched, *desk.entries.values())]
        assert sum(desk.size for desk in desks) == sum(entry.size for entry in here)
        most = max(most, sum(desk.size for desk in desks))
        for entry in consumer.take(int(n >= 60), clock.monotonic()):
            consumer.ack(entry, entry.run)
            done += 1
    assert done == 40
    assert 50_000 <= most < 100_000
    assert not sum(desk.size for desk in consumer.desks.values())


def test_what_handlers_have_makes_no_other_message_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may collect messages before it acknowledges them."""
    monkeypatch.setattr(fetcher, "FETCH_BYTES", 10_000)
    monkeypatch.setattr(fetcher, "MOST_BYTES", 20_000)
    home, clock = simulated_home()
    queue = home.queue("q", shards=1)
    for n in range(9):
        queue.push(b"%d" % n + bytes(10_000))
    consumer = joined(queue, clock)
    taken = [next_of(consumer, queue, clock) for _ in range(9)]
    assert [entry.offset for entry in taken] == list(range(9))
