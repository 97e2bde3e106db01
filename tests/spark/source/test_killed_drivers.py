"""Queries over a change stream and over the feed whose drivers are killed."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from tailrace.events import Event
from tailrace.home import Home
from tailrace.streams import hash_key, model
from tests.spark.cluster import finished, job, kill_all, wait_for

ROUNDS = 5


@model(stream={"new", "old"})
class User:
    id: str = hash_key()
    n: int = 0


def done(place: Path, name: str) -> int:
    """How many batches a query has noted as done."""
    return len(list((place / f"{name}-checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.soak
@pytest.mark.processes
def test_drivers_that_are_killed_lose_and_double_nothing(home: Home, tmp_path: Path) -> None:
    engine, events, place = home.engine(), home.events(), tmp_path / "out"
    engine.bind(User)
    numbers = count()

    def write() -> bool:
        for _ in range(5):
            n = next(numbers)
            engine.save(User(id=f"u{n}", n=n))
            events.stream(f"S-{n % 3}").append([Event("Added")])
        return False

    write()
    for _ in range(ROUNDS):
        before = {name: done(place, name) for name in ("stream", "feed")}
        with job("follow", tmp_path / "job.log", home=home.url, place=str(place), report=None) as driver:
            for name in before:  # it is killed in the middle of another batch, since there is always more to read
                wait_for(lambda: write() or done(place, name) > before[name], driver, tmp_path / "job.log")  # noqa: B023
            kill_all(driver.pid)
    report = tmp_path / "report.json"
    with job("follow", tmp_path / "job.log", home=home.url, place=str(place), report=str(report)) as driver:
        finished(driver, tmp_path / "job.log")
    found, written = json.loads(report.read_text()), next(numbers)
    assert sorted(json.loads(key)["id"] for key in found["stream"]) == sorted(f"u{n}" for n in range(written))
    assert sorted(found["feed"]) == sorted([f"S-{n % 3}", n // 3] for n in range(written))
