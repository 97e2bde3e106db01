"""Projections in processes of their own that are killed, with the indexer in them: every event has its effect once."""

from __future__ import annotations

import random
import sys
import textwrap
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import tailrace
from tailrace.events import Event
from tailrace.streams import Engine, hash_key, model
from tests.streams.test_consumer_processes import kill, until

PROJECTION = """
    import sys, tailrace
    from tailrace.events import Event
    from tailrace.streams import Absent, Equals, hash_key, model

    @model()
    class Total:
        id: str = hash_key()
        n: int = 0

    with tailrace.open(sys.argv[1]) as home:
        engine, events = home.engine(), home.events()
        engine.bind(Total)

        def project(event):
            known = engine.load(Total, id=event.stream)
            n = known.n if known else 0
            assert n == event.index, (n, event)  # the events of one stream come in order, none again
            writes = engine.writes()
            writes.save(Total(id=event.stream, n=n + 1), when=[Equals("n", n)] if known else [Absent()])
            return [writes, events.stream("Audit-1").change([Event("Seen", event.stream.encode())])]

        events.feed(category="S").consumer("totals", project, ttl=1.0).run()
"""


@model()
class Total:
    id: str = hash_key()
    n: int = 0


def started(home: Path) -> Popen[bytes]:
    return Popen([sys.executable, "-c", textwrap.dedent(PROJECTION), str(home)], stderr=PIPE)


def total(engine: Engine) -> int:
    return sum(one.n for one in engine.scan(Total))


@pytest.mark.processes
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_projections_that_are_killed_lose_and_double_nothing(tmp_path: Path, rounds: int) -> None:
    rng, path = random.Random(rounds), tmp_path / "home"
    with tailrace.open(path) as home:
        engine, events = home.engine(), home.events()
        engine.bind(Total)
        running = [started(path) for _ in range(2)]
        written = 0
        try:
            for _ in range(rounds):
                before = total(engine)
                for _ in range(15):
                    count = rng.randint(1, 4)
                    events.stream(f"S-{rng.randrange(5)}").append([Event("A")] * count)
                    written += count
                some = before + rng.randint(1, 10)
                until(lambda some=some: total(engine) >= some, running)  # type: ignore[misc]
                for doomed in rng.sample(running, rng.randint(1, 2)):
                    kill(doomed)
                    running[running.index(doomed)] = started(path)
            until(lambda: total(engine) >= written, running)
        finally:
            for process in running:
                kill(process)
        assert {one.id: one.n for one in engine.scan(Total)} == {
            stream: events.stream(stream).version for stream in events.streams("S")
        }
        assert events.stream("Audit-1").version == written
