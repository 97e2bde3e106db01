"""Equal states have equal fingerprints, and whatever differs shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from tailrace.errors import StorageError
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Key, Put, Update
from tailrace.testing import Life, Simulation
from tailrace.testing.fingerprint import fingerprint

A, B = Key("a"), Key("b")


def adder(key: Key) -> Callable[[Life], Steps[None]]:
    def steps(life: Life) -> Steps[None]:
        for _ in range(2):
            with suppress(StorageError):
                yield from calls.write(Update(key, (Add("n", 1),)))
            yield from calls.pause(0)

    return steps


def state(moves: Sequence[tuple[str, object]] = (), n: int = 0) -> int:
    sim = Simulation()
    sim.budget = dict.fromkeys(sim.budget, 3)
    for key in (A, B):
        sim.do(calls.write(Put(key, {"n": n}, (Absent(),))))
    sim.spawn("a", adder(A), restarts=1)
    sim.spawn("b", adder(B), restarts=1)
    for move in moves:
        sim.apply(move)
    return fingerprint(sim)


def test_moves_of_strangers_commute():
    a, b = ("step", "a"), ("step", "b")
    assert state([a, a, b]) == state([b, a, a]) == state([a, b, a])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("step", "a")], []),
        ([("step", "a")], [("step", "b")]),
        ([("landed", "a")], [("lost", "a")]),
        ([("in flight", "a")], [("lost", "a")]),
        ([("crash", "a")], []),
        ([("crash", "a")], [("zombie", "a")]),
    ],
    ids=repr,
)
def test_what_differs_shows(one, other):
    assert state(one) != state(other)


def test_storage_shows():
    assert state(n=0) != state(n=1)


def test_variables_show():
    """The same place, the same storage, another memory."""

    def remembering(number: int) -> int:
        def steps(life: Life) -> Steps[int]:
            remembered = number
            yield from calls.now()
            return remembered

        sim = Simulation()
        sim.spawn("a", steps)
        return fingerprint(sim)

    assert remembering(1) == remembering(1) != remembering(2)


def test_times_do_not_show():
    sim = Simulation()
    sim.spawn("a", adder(A))
    before = fingerprint(sim)
    sim.clock.move(5)
    assert fingerprint(sim) == before
