"""Shared shards and projections where systems lose data in silence: stopped processes, forks, full disks, names, many
shards, none at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.errors import BadInput
from tailrace.events import Event
from tailrace.streams import Absent, hash_key, model
from tests.feed import test_projection_processes as projections
from tests.stopping import stop_outside_a_commit
from tests.streams import test_consumer_processes as shards
from tests.streams.test_consumer import PATIENCE, Shared, until


@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    text: str = ""


@model()
class Seen:
    id: str = hash_key()
    text: str = ""


# -- processes
@pytest.mark.processes
@pytest.mark.parametrize("what", ["shards", "projections"])
def test_a_process_that_is_stopped_for_longer_than_its_ttl_doubles_nothing(tmp_path: Path, what: str) -> None:
    path, written = tmp_path / "home", 0
    kind: Any = shards if what == "shards" else projections

    def write(home: tailrace.Home, count: int) -> None:
        nonlocal written
        for _ in range(count):
            written += 1
            if what == "shards":
                engine.save(shards.Item(id=f"k{written % 8}", n=written))
            else:
                home.events().stream(f"S-{written % 5}").append([Event("A")])

    with tailrace.open(path) as home:
        engine = home.engine()
        engine.bind(*([shards.Item, shards.Effect] if what == "shards" else [projections.Total]))
        effects = shards.effects if what == "shards" else projections.total
        write(home, 1)
        stopped = kind.started(path)
        running = [stopped]
        try:
            until(lambda: effects(engine) == 1)
            write(home, 30)
            stop_outside_a_commit(stopped, path)  # it holds the lease, and perhaps a record
            running.append(kind.started(path))
            shards.until(lambda: effects(engine) == written, running[1:])
            write(home, 30)
            stopped.send_signal(signal.SIGCONT)
            shards.until(lambda: effects(engine) >= written, running)
        finally:
            for process in running:
                process.send_signal(signal.SIGCONT)
                shards.kill(process)
        assert effects(engine) == written


FORK = """
    import os, signal, sys, time
    import tailrace
    from tailrace.streams import hash_key, model

    @model(stream={"new", "old"})
    class User:
        id: str = hash_key()

    with tailrace.open(sys.argv[1]) as home:
        engine, handled = home.engine(), []
        engine.bind(User)
        engine.save(User("u0"))
        shared = engine.consumer(User, "mailer", lambda record: handled.append(record.new.id))
        fed = home.events().feed().consumer("mailer", lambda event: None)
        with shared, fed:
            while handled != ["u0"] or not fed.units:
                time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                shared.close()  # the members are the parent's: this must neither wait for threads nor give units back
                fed.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert shared.units and fed.units
            engine.save(User("u1"))
            while handled != ["u0", "u1"]:
                time.sleep(0.01)
"""


@pytest.mark.processes
def test_a_forked_child_gives_nothing_of_its_parents_back(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK), str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
    assert done.returncode == 0, done.stderr


# -- a full disk
@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_waited_for_and_nothing_is_lost_or_doubled(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tailrace.open(disk / "home") as home:
        engine = home.engine()
        engine.bind(User, Seen)
        for n in range(60):
            engine.save(User(f"u{n}"))
        junk, filled = disk / "junk", threading.Event()

        def handler(record: Any) -> Any:
            if record.new.id == "u3" and not filled.is_set():
                filled.set()
                fill_up(junk)
            writes = engine.writes()
            writes.save(Seen(record.new.id, "x" * 20_000), when=[Absent()])
            return writes

        with engine.consumer(User, "mailer", handler, ttl=1) as consumer:
            until(lambda: "full" in caplog.text or "free some space" in caplog.text)
            assert consumer.failure is None
            junk.unlink()
            until(lambda: sum(1 for _ in engine.scan(Seen)) == 60)
            assert consumer.failure is None
        assert consumer.handled == 60


def fill_up(junk: Path) -> None:
    with junk.open("wb", buffering=0) as out:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    out.write(b"." * size)
            except OSError:
                continue


# -- names, many, none
def test_groups_are_told_apart_by_every_letter_of_their_names(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine, events = home.engine(), home.events()
        engine.bind(User)
        engine.save(User("u"))
        events.stream("S-1").append([Event("A")])
        names = ["mailer", "Mailer", "mailer_1", "mailer-1"]
        for name in names:
            assert engine.consumer(User, name, lambda record: None).run(PATIENCE, until_caught_up=True).records == 1
            assert events.feed().consumer(name, lambda event: None).run(PATIENCE, until_caught_up=True).records == 1
        assert sorted(events.checkpoints.groups()) == sorted(names)
        for bad in ("", "a" * 300, "a/b", "a\n", "a b", "é\0", "$a", "a.b"):
            with pytest.raises(BadInput):
                engine.consumer(User, bad, lambda record: None)
            with pytest.raises(BadInput):
                events.feed().consumer(bad, lambda event: None)


def test_a_thousand_shards_are_read_by_one_consumer() -> None:
    shared = Shared(1000)
    shared.write(3000)
    ran = shared.consumer(threads=2, ttl=20).run(PATIENCE * 2, until_caught_up=True)
    assert (ran.records, ran.caught_up) == (3000, True)
    assert sorted(shared.sequences) == sorted(
        c.sequence for s in shared.changes.every() for c in shared.changes.within(s.id)
    )
    assert len(shared.group().status(count=False).shards) == 1000


def test_there_is_nothing(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine, events = home.engine(), home.events()
        engine.bind(User)
        for _ in range(2):
            assert engine.consumer(User, "mailer", lambda r: None).run(PATIENCE, until_caught_up=True)[:2] == (0, True)
            assert events.feed().consumer("mailer", lambda e: None).run(PATIENCE, until_caught_up=True)[:2] == (0, True)
        (shard,) = engine.group(User, "mailer").status().shards
        (partition,) = events.checkpoints.show("mailer").partitions
        assert (shard.error, partition.behind, partition.checkpoint) == ("", 0, 0)


# -- clocks
def test_a_clock_that_is_a_day_off_takes_no_unit_from_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(2)
    with shared.consumer(0) as right:
        until(lambda: len(right.units) == 2)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 86_400)
        wrong = shared.consumer(1)
        with wrong:
            until(lambda: (len(right.units), len(wrong.units)) == (1, 1))
            shared.write(20)
            until(lambda: len(shared.handled) == 20)
        until(lambda: len(right.units) == 2)
    assert sorted(shared.sequences) == sorted(set(shared.sequences))
