"""The simulation: every fault happens, is survived or found, told, and made again from its seed."""

from __future__ import annotations

import pytest

from tailrace.errors import Conflict, Throttled, TimedOut
from tailrace.storage import calls
from tailrace.storage.calls import Steps
from tailrace.storage.tables import Absent, Add, Include, Key, NotIn, Put, Update
from tailrace.testing import Life, Simulation, Violation, check_schedules

COUNT = Key("count")


def counter(sim: Simulation) -> None:
    sim.do(calls.write(Put(COUNT, {"n": 0}, (Absent(),))))


def careless(life: Life) -> Steps[None]:
    """Adds one, and adds again when it was not answered."""
    while True:
        try:
            yield from calls.write(Update(COUNT, (Add("n", 1),)))
            return
        except (Throttled, TimedOut):
            yield from calls.pause(0)


def careful(life: Life) -> Steps[None]:
    """Adds one under its own id."""
    while True:
        try:
            yield from calls.write(
                Update(COUNT, (Add("n", 1), Include("ids", frozenset({life.actor}))), (NotIn("ids", life.actor),))
            )
            return
        except Conflict:
            return
        except (Throttled, TimedOut):
            yield from calls.pause(0)


def scenario(actor):
    def prepare(sim: Simulation) -> None:
        counter(sim)
        for name in "abc":
            sim.spawn(name, actor, restarts=1)

        def at_most_three(sim: Simulation) -> None:
            if sim.table.items[COUNT]["n"] > 3:
                raise Violation("counted too often", sim.table.items[COUNT]["n"])

        sim.check.append(at_most_three)

    return prepare


def test_careful_counting_survives():
    assert check_schedules(scenario(careful), range(500)) == 500


def test_careless_counting_is_found_and_told():
    with pytest.raises(Violation) as caught:
        check_schedules(scenario(careless), range(500))
    print(caught.value)
