"""Consumers in processes of their own that are killed: no change is lost, none has its effect twice or out of order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.streams import Engine, hash_key, model
from tailrace.streams.table_homes import Embedded, Opened

CONSUMER = """
    import os, sys, tailrace
    from tailrace.streams import Absent, Add, Equals, hash_key, model

    @model(stream={"new", "old"})
    class Item:
        id: str = hash_key()
        n: int = 0

    @model()
    class Effect:
        id: str = hash_key()
        last: int = 0
        count: int = 0

    with tailrace.open(sys.argv[1]) as home:
        engine = home.engine()
        engine.bind(Item, Effect)

        def handler(record):
            known = engine.load(Effect, id=record.new.id) or Effect(id=record.new.id)
            assert known.last < record.new.n, (known, record)  # the changes of one key come in order, none again
            writes = engine.writes()
            when = [Equals("count", known.count)] if known.count else [Absent()]
            writes.save(Effect(id=record.new.id, last=record.new.n, count=known.count + 1), when=when)
            return writes

        engine.consumer(Item, "effects", handler, ttl=1.0).run()
"""
KEYS = 8


@model(stream={"new", "old"})
class Item:
    id: str = hash_key()
    n: int = 0


@model()
class Effect:
    id: str = hash_key()
    last: int = 0
    count: int = 0


def rolling(self: Embedded, name: str, opened: Opened) -> Any:
    """A stream whose shard ends after a few changes, so that there are children to be begun."""
    table: Any = opened.table
    return table.capture(opened.view, roll_records=7)


def started(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(CONSUMER), str(home)], stderr=subprocess.PIPE)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def until(condition: Callable[[], bool], running: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        for process in running:
            if process.poll() is not None and process.stderr is not None:
                raise AssertionError(process.stderr.read().decode())
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def effects(engine: Engine) -> int:
    return sum(effect.count for effect in engine.scan(Effect))


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_consumers_that_are_killed_lose_and_double_nothing(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, path = random.Random(rounds), tmp_path / "home"
    with tailrace.open(path) as home:
        engine = home.engine()
        with monkeypatch.context() as patched:
            patched.setattr(Embedded, "changes", rolling)
            engine.bind(Item, Effect)
        running = [started(path) for _ in range(3)]
        written = 0
        try:
            for _ in range(rounds):
                before = effects(engine)
                for _ in range(40):
                    written += 1
                    engine.save(Item(id=f"k{written % KEYS}", n=written))
                some = before + rng.randint(1, 30)
                until(lambda some=some: effects(engine) >= some, running)  # type: ignore[misc]
                for doomed in rng.sample(running, rng.randint(1, 2)):
                    kill(doomed)
                    running[running.index(doomed)] = started(path)
            until(lambda: effects(engine) >= written, running)
        finally:
            for process in running:
                kill(process)
        assert effects(engine) == written
        last = {effect.id: effect.last for effect in engine.scan(Effect)}
        assert last == {f"k{n % KEYS}": n for n in range(written - KEYS + 1, written + 1)}
        assert len(engine.group(Item, "effects").status(count=False).shards) > rounds
