"""A table's changes in a topic, each once: with faults, kills between any two writes, and two copies at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace import stream_copy
from tailrace.errors import BadToken
from tailrace.home import Home
from tailrace.log.record import Op
from tailrace.streams import hash_key, model
from tailrace.testing import Faults, ManualClock
from tests.log.partitioning import keys_in_place


@model(stream={"new", "old"})
class Count:
    name: str = hash_key()
    n: int


class Killed(BaseException):
    """The process ends here."""


def change(home: Home, numbers: range, names: int = 7) -> None:
    engine = home.engine()
    engine.bind(Count)
    for n in numbers:
        engine.save(Count(f"c{n % names}", n))


def copied(home: Home, topic: str = "changes") -> dict[str, list[int]]:
    """The values of each item in the topic, in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for record in home.topic(topic).records():
        assert record.value is not None
        change = json.loads(record.value)
        found[change["key"]["name"]].append(change["new"]["n"])
    return found


def expected(total: int, names: int = 7) -> dict[str, list[int]]:
    return {f"c{name}": list(range(name, total, names)) for name in range(names)}


def test_a_topic_that_places_keys_as_kafka_does(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        change(home, range(30))
        topic = home.topic("changes", partitions=5, partitioner="murmur2")
        with home.copy_stream("Count", topic) as copying:
            assert copying.once() == 30
        assert keys_in_place(topic) == 30


def test_records_have_key_change_time_and_op(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        engine = home.engine()
        engine.bind(Count)
        engine.save(Count("a", 1))
        engine.save(Count("a", 2))
        engine.delete(Count("a", 2))
        topic = home.topic("changes", 3)
        with home.copy_stream("Count", topic) as copying:
            assert copying.once() == 3
            assert copying.once() == 0
            assert copying.records == 3
        records = list(topic.records())
        assert {record.key for record in records} == {b'{"name":"a"}'}
        assert [record.op for record in records] == [Op.INSERT, Op.UPDATE, Op.DELETE]
        values = [json.loads(record.value or b"") for record in records]
        assert [(v["table"], v["old"], v["new"]) for v in values] == [
            ("Count", None, {"name": "a", "n": 1}),
            ("Count", {"name": "a", "n": 1}, {"name": "a", "n": 2}),
            ("Count", {"name": "a", "n": 2}, None),
        ]
        assert all(
            record.timestamp == value["meta"]["created_at"] for record, value in zip(records, values, strict=True)
        )
        assert not home.scrub().damages


def test_a_copy_from_the_end_begins_there_however_late_it_goes_on(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        change(home, range(5))
        home.topic("changes", 1)
        home.copy_stream("Count", "changes", "latest").close()
        change(home, range(5, 7))
        assert home.copy_stream("Count", "changes", "latest").once() == 2
        assert home.copy_stream("Count", "changes", "trim_horizon").once() == 0, "only the first copy begins there"
        assert home.copy_stream("Count", "changes", "trim_horizon", restart=True).once() == 7


def test_two_copies_at_once_write_each_change_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_copy, "MAX_RECORDS", 3)
    with tailrace.open("memory://") as home:
        change(home, range(40))
        home.topic("changes", 2)
        two = [home.copy_stream("Count", "changes") for _ in range(2)]
        rng = random.Random(1)
        for _ in range(60):
            rng.choice(two)._batch()
        assert copied(home) == expected(40)
        assert sorted(one.once() for one in two) == [0, 0]


def schedule(seed: int) -> None:
    """Lives of a copy that meet faults and are killed before or after any write, beside somebody who writes."""
    rng = random.Random(seed)
    with tailrace.open("memory://") as home:
        table: Any = home.store.table
        home.topic("changes", rng.randint(1, 3))
        done, total = 0, 30
        change(home, range(done))
        clock = ManualClock()
        store = home.store
        store.clock, store.sleep = clock.monotonic, clock.move  # type: ignore[misc]
        write = table.write
        while True:
            more = rng.randint(0, 8) if done < total else 0
            change(home, range(done, min(done + more, total)))
            done = min(done + more, total)
            fatal, writes = rng.randint(1, 12), [0]

            def counted(*actions: Any, fatal: int = fatal, writes: list[int] = writes) -> Any:
                writes[0] += 1
                if writes[0] * 2 - 1 == fatal:
                    raise Killed
                answer = write(*actions)
                if writes[0] * 2 == fatal:
                    raise Killed
                return answer

            table.faults = Faults(seed * 1000 + done, landed=0.05, lost=0.05, late=0.05, throttled=0.05, unread=0.02)
            table.write = counted if done < total or rng.random() < 0.7 else write
            try:
                assert home.copy_stream("Count", "changes").once() >= 0
                ended = done == total
            except Killed:
                ended = False
            finally:
                table.write = write
                faults, table.faults = table.faults, None
                faults.settle()
            if ended:
                break
        assert copied(home) == expected(total), f"seed {seed}"


@pytest.mark.parametrize("many", [60, pytest.param(5_000, marks=pytest.mark.soak)])
def test_random_lives(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_copy, "MAX_RECORDS", 4)
    for seed in range(many):
        schedule(seed)


COPY = """
import sys, tailrace
with tailrace.open(sys.argv[1]) as home:
    copying = home.copy_stream("Count", "changes")
    print("ready", flush=True)
    for _ in copying.follow():
        pass
"""


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_a_copy_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    with tailrace.open(tmp_path / "home") as home:
        home.topic("changes", 2)
        change(home, range(0))
        done = 0
        for _ in range(rounds):
            process = subprocess.Popen([sys.executable, "-c", COPY, str(tmp_path / "home")], stdout=subprocess.PIPE)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            end = time.monotonic() + rng.uniform(0.02, 0.3)
            while time.monotonic() < end:
                change(home, range(done, done + 10))
                done += 10
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        home.copy_stream("Count", "changes").once()
        assert copied(home) == expected(done)
        assert sum(map(len, copied(home).values())) == done > 0


def test_a_table_that_was_made_again_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with tailrace.open(tmp_path / "home") as home:
        change(home, range(3))
        home.topic("changes", 1)
        home.copy_stream("Count", "changes").once()
        home.copy(tmp_path / "copied")
    with tailrace.open(tmp_path / "copied") as home:
        home.engine().bind(Count)
        with pytest.raises(BadToken, match=r"another stream.*`tailrace stream copy Count changes --restart`"):
            home.copy_stream("Count", "changes")
