"""Calls of several processes at once are answered as by one log, in an order that their times allow."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, permutations
from pathlib import Path

import pytest

import tailrace
from tailrace.home import Home
from tailrace.storage.calls import Store
from tailrace.testing import SimulatedObjects
from tests.faults.historian import BUGS
from tests.faults.linearizability import NEVER, Call, State, after, linearized, told
from tests.servers.aws import new_table, table
from tests.servers.process import Server

PROCESSES, CALLS = 4, 40


# -- the search
def sent(start: int, end: int, value: str, answer: object, expected: int | None = None) -> Call:
    return Call(0, start, end, "append", (expected, value), answer)


def read(start: int, end: int, *values: str) -> Call:
    return Call(0, start, end, "read", (), list(values))


def tail(start: int, end: int, at: int) -> Call:
    return Call(0, start, end, "tail", (), at)


GOOD: dict[str, list[Call]] = {
    "nothing": [],
    "one after the other": [sent(0, 1, "a", ["at", 0]), tail(2, 3, 1), read(4, 5, "a")],
    "at the same time, either order": [sent(0, 9, "a", ["at", 1]), sent(1, 8, "b", ["at", 0]), read(10, 11, "b", "a")],
    "seen before it was answered": [sent(0, 9, "a", ["at", 0]), tail(1, 2, 1)],
    "not seen yet": [sent(0, 9, "a", ["at", 0]), tail(1, 2, 0), tail(3, 4, 1)],
    "one of two wins": [
        sent(0, 9, "a", ["at", 0], expected=0),
        sent(1, 8, "b", ["refused", 1], expected=0),
        sent(10, 11, "b", ["at", 1], expected=1),
    ],
    "no answer, and it happened": [sent(0, NEVER, "a", None), tail(5, 6, 0), read(7, 8, "a")],
    "no answer, and it never happened": [sent(0, NEVER, "a", None), tail(5, 6, 0)],
    "no answer, and its condition fails": [sent(0, 1, "a", ["at", 0]), sent(2, NEVER, "b", None, 0), tail(3, 4, 1)],
}
BAD: dict[str, list[Call]] = {
    "an acknowledged record is gone": [sent(0, 1, "a", ["at", 0]), tail(2, 3, 0)],
    "a stale read": [sent(0, 1, "a", ["at", 0]), sent(2, 3, "b", ["at", 1]), read(4, 5, "a")],
    "it went back": [sent(0, 9, "a", ["at", 0]), tail(1, 2, 1), tail(3, 4, 0)],
    "the same offset twice": [sent(0, 9, "a", ["at", 0]), sent(1, 8, "b", ["at", 0])],
    "both win": [sent(0, 9, "a", ["at", 0], expected=0), sent(1, 8, "b", ["at", 1], expected=0)],
    "refused for nothing": [sent(0, 1, "a", ["refused", 0], expected=0)],
    "in the wrong order": [sent(0, 1, "a", ["at", 1]), sent(2, 3, "b", ["at", 0])],
    "twice": [sent(0, 1, "a", ["at", 0]), read(2, 3, "a", "a")],
    "another's record": [sent(0, 1, "a", ["at", 0]), read(2, 3, "b")],
    "a hole": [sent(0, 1, "a", ["at", 1])],
    "two readers disagree": [
        sent(0, 9, "a", ["at", 0]),
        sent(0, 9, "b", ["at", 1]),
        read(10, 11, "a", "b"),
        read(12, 13, "b", "a"),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_log_can_answer_has_an_order(name: str) -> None:
    order = linearized(GOOD[name])
    assert order is not None
    assert all(call in order for call in GOOD[name] if call.answer is not None)


@pytest.mark.parametrize("name", BAD)
def test_what_no_log_would_answer_has_none(name: str) -> None:
    assert linearized(BAD[name]) is None


def possible(history: list[Call]) -> bool:
    """The same, by trying every order."""
    surely = [call for call in history if call.answer is not None]
    doubtful = [call for call in history if call.answer is None]
    for some in range(1 << len(doubtful)):
        chosen = surely + [call for n, call in enumerate(doubtful) if some >> n & 1]
        if any(_explains(order) for order in permutations(chosen)):
            return True
    return False


def _explains(order: tuple[Call, ...]) -> bool:
    states: list[State] = [()]
    for n, call in enumerate(order):
        if any(later.end < call.start for later in order[n + 1 :]):
            return False
        states = [then for state in states for then in after(state, call)]
    return bool(states)


def test_it_finds_what_trying_every_order_finds() -> None:
    rng, found = random.Random(7), [0, 0]
    for _ in range(1500):
        history, names = [], count()
        for _ in range(rng.randint(1, 5)):
            start = rng.randint(0, 8)
            end = start + rng.randint(0, 5)
            kind = rng.choice("aaatr")
            if kind == "t":
                history.append(tail(start, end, rng.randint(0, 2)))
            elif kind == "r":
                history.append(read(start, end, *rng.sample("0123", rng.randint(0, 2))))
            else:
                answer = rng.choice((["at", rng.randint(0, 2)], ["refused", rng.randint(0, 2)], None))
                expected = rng.choice((None, 0, 1)) if answer != ["refused", 0] else 1
                history.append(sent(start, NEVER if answer is None else end, str(next(names)), answer, expected))
        right = possible(history)
        assert (linearized(history) is not None) == right, told(history)
        found[right] += 1
    assert min(found) > 200


# -- real processes
def histories(where: str, notes: Path, calls: int, seed: int, bug: str | None = None) -> list[Call]:
    """What some processes called at the same time, and were answered."""
    running = []
    for who in range(PROCESSES):
        given = [where, str(seed * 100 + who), str(calls), str(notes / f"{who}"), *([bug] if bug else [])]
        command = [sys.executable, "-m", "tests.faults.historian", *given]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT))
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=600)
        assert process.returncode == 0
    return [
        Call(who, start, NEVER if answer is None else end, op, tuple(given), answer)
        for who in range(PROCESSES)
        for start, end, op, given, answer in map(json.loads, (notes / f"{who}").read_text().splitlines())
    ]


ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["disk", pytest.param("dynoxide", marks=pytest.mark.server)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A home with a topic of one partition, as a process is told of it."""
    if request.param == "disk":
        with tailrace.open(tmp_path / "home") as home:
            home.topic("calls", partitions=1)
        yield str(tmp_path / "home")
        return
    server: Server = request.getfixturevalue(request.param)
    name = new_table(server)
    with table(server, name) as on_server:
        Home("s3://simulated", Store(on_server, SimulatedObjects())).topic("calls", partitions=1)
    yield json.dumps({"server": dataclasses.asdict(server), "table": name})


def test_several_processes_see_one_log(where: str, tmp_path: Path) -> None:
    history = histories(where, tmp_path, CALLS, 1)
    assert overlapping(history) > CALLS, "the processes took turns, which shows nothing"
    assert any(call.answer[0] == "refused" for call in history if call.op == "append" and call.answer)
    assert linearized(history) is not None, told(history)


def overlapping(history: list[Call]) -> int:
    """How many calls began while another process's was under way."""
    return sum(any(o.who != c.who and o.start < c.start < o.end for o in history) for c in history)


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str, tmp_path: Path) -> None:
    """On a busy machine the processes may take turns for a whole round, and then a bug shows nothing."""
    for seed in range(1, 11):
        home = tmp_path / f"home-{seed}"
        with tailrace.open(home) as opened:
            opened.topic("calls", partitions=1)
        if linearized(histories(str(home), tmp_path, 20, seed, bug)) is None:
            return
    pytest.fail("ten rounds with the bug look as if it were not there")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_soak_several_processes_see_one_log(where: str, tmp_path: Path, seed: int) -> None:
    history = histories(where, tmp_path, 200, seed)
    assert linearized(history) is not None, told(history)
