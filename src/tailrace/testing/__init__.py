"""Tools for tests of tailrace, and of your code: simulated storage, a clock moved by hand, contract test classes.

The contract classes need pytest and the stream service needs boto3, so Python loads these only when a test names them.
Only tests import this package: nothing else in tailrace may.

Read in this order: simulatedtable, simulatedobjects, simulatedchanges, faults, clock, simulation, actors, schedules,
explore, simulated_calls, fingerprint, narrative; tablecontract, tablecases, tableitems, tablelimits, tablequeries,
tableraces; objectscontract, changescontract, leasecontract, adaptorcontract, readercontract, writercontract,
streamservice."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.testing.actors import Life
from tailrace.testing.clock import ManualClock
from tailrace.testing.explore import Exploration, explore
from tailrace.testing.faults import Faults
from tailrace.testing.schedules import Scenario, check_schedules, one_schedule, replay, shrink
from tailrace.testing.simulatedchanges import SimulatedChanges
from tailrace.testing.simulatedobjects import SimulatedObjects
from tailrace.testing.simulatedtable import SimulatedTable
from tailrace.testing.simulation import Move, Simulation, Violation

if TYPE_CHECKING:
    from tailrace.testing.changescontract import ChangesContract
    from tailrace.testing.leasecontract import LeaseContract
    from tailrace.testing.objectscontract import ObjectsContract
    from tailrace.testing.readercontract import ReaderContract
    from tailrace.testing.streamservice import StreamService
    from tailrace.testing.tablecontract import TableContract
    from tailrace.testing.writercontract import WriterContract

_LOADED_LATER = (
    "TableContract",
    "ObjectsContract",
    "ChangesContract",
    "LeaseContract",
    "ReaderContract",
    "WriterContract",
    "StreamService",
)

__all__ = [
    "ChangesContract",
    "Exploration",
    "Faults",
    "LeaseContract",
    "Life",
    "ManualClock",
    "Move",
    "ObjectsContract",
    "ReaderContract",
    "Scenario",
    "SimulatedChanges",
    "SimulatedObjects",
    "SimulatedTable",
    "Simulation",
    "StreamService",
    "TableContract",
    "Violation",
    "WriterContract",
    "check_schedules",
    "explore",
    "one_schedule",
    "replay",
    "shrink",
]


def __getattr__(name: str) -> Any:
    if name in _LOADED_LATER:
        return getattr(import_module(f"tailrace.testing.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
