"""What tailrace is tested with, and your code can be: simulated storage, a clock moved by hand, contract test classes.

The contract classes need pytest, and are loaded when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.testing.clock import ManualClock
from tailrace.testing.explore import Explored, explore
from tailrace.testing.faults import Faults
from tailrace.testing.lives import Life
from tailrace.testing.schedules import Scenario, check_schedules, one_schedule, replay, shrink
from tailrace.testing.simulatedchanges import SimulatedChanges
from tailrace.testing.simulatedobjects import SimulatedObjects
from tailrace.testing.simulatedtable import SimulatedTable
from tailrace.testing.simulation import Move, Simulation, Violation

if TYPE_CHECKING:
    from tailrace.testing.changescontract import ChangesContract
    from tailrace.testing.leasecontract import LeaseContract
    from tailrace.testing.objectscontract import ObjectsContract
    from tailrace.testing.tablecontract import TableContract

_CONTRACTS = ("TableContract", "ObjectsContract", "ChangesContract", "LeaseContract")

__all__ = [
    "ChangesContract",
    "Explored",
    "Faults",
    "LeaseContract",
    "Life",
    "ManualClock",
    "Move",
    "ObjectsContract",
    "Scenario",
    "SimulatedChanges",
    "SimulatedObjects",
    "SimulatedTable",
    "Simulation",
    "TableContract",
    "Violation",
    "check_schedules",
    "explore",
    "one_schedule",
    "replay",
    "shrink",
]


def __getattr__(name: str) -> Any:
    if name in _CONTRACTS:
        return getattr(import_module(f"tailrace.testing.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
